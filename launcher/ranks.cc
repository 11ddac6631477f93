#include "launcher/ranks.h"

namespace weft {
namespace {

int run_body(const Config& config, const Layout& layout, World& world, std::string& doing,
             const std::function<int(const RankContext&)>& body) {
  const Splitter split = [&](int color, int key, const std::string& axis) {
    return world.split(color, key, axis);
  };
  const auto signatures = config.run.check_collectives ? Signatures::kCompare : Signatures::kTrust;
  const auto mesh = std::make_shared<const Mesh>(layout, split, signatures);
  const int threads = config.train.threads > 0 ? config.train.threads : world.threads();
  const int code = body({world, mesh, threads, doing});
  // mpirun ends everybody at the first exit code that is not 0: nobody may still be writing then.
  world.all().barrier();
  return code;
}

}  // namespace

int on_ranks(const Config& config, const std::function<int(const RankContext&)>& body) {
  const Launch launch = this_launch();
  const Layout layout = make_layout(config, launch.rank, launch.size);
  World world(launch);
  std::string doing = "starting";
  if (launch.size == 1) return run_body(config, layout, world, doing, body);
  try {
    return run_body(config, layout, world, doing, body);
  } catch (...) {
    const Station station{launch.rank, describe(layout.here), doing};
    world.abort(report_failure(std::current_exception(), &station));
  }
}

}  // namespace weft
