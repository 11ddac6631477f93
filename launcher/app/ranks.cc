#include "launcher/app/ranks.h"

#include <cstdlib>
#include <optional>

#include <fmt/format.h>

#include "layers/model_stage.h"
#include "parallel/watchdog/watchdog.h"

namespace weft {
namespace {

std::shared_ptr<const Mesh> make_mesh(const Config& config, const Layout& layout, World& world) {
  const Splitter split = [&](int color, int key, const std::string& axis) {
    return world.split(color, key, axis);
  };
  const auto signatures = config.run.check_collectives ? Signatures::kCompare : Signatures::kTrust;
  return std::make_shared<const Mesh>(layout, split, signatures);
}

// Warns when a rank waits too long, and finally aborts. This ends only this process; mpirun then
// ends the others.
std::unique_ptr<Watchdog> make_watchdog(const Config& config, const Mesh& mesh) {
  const RunConfig& run = config.run;
  if (mesh.size() == 1 || (run.slow_seconds == 0 && run.watchdog_seconds == 0)) return nullptr;
  return std::make_unique<Watchdog>(
      WatchdogOptions{run.dir + "/heartbeats", run.slow_seconds, run.watchdog_seconds},
      Watchdog::Rank{mesh.rank(), mesh.size(), describe(mesh.here())}, mesh.activity(),
      [](const std::string& text) { fmt::print(stderr, "weft: {}\n", text); },
      [] { std::_Exit(kExitFailed); });
}

using Body = std::function<int(const RankContext&)>;
using BeforeFiles = std::function<void(const Mesh&)>;

int run_body(const Config& config, World& world, std::shared_ptr<const Mesh> mesh, const Body& body,
             const BeforeFiles& before_files) {
  if (before_files) {
    before_files(*mesh);
    mesh->hosts().barrier();
  }
  const auto watchdog = make_watchdog(config, *mesh);
  const int threads = config.train.threads > 0 ? config.train.threads : world.threads();
  const int code = body({world, mesh, threads});
  // mpirun kills all ranks at the first exit code other than 0: all writing must be over by then.
  mesh->hosts().barrier();
  return code;
}

std::string doing(const Mesh* mesh) {
  if (mesh == nullptr) return "starting";
  const Activity::Now now = mesh->activity().now();
  const std::string place = place_text(now);
  return now.call == nullptr ? place : fmt::format("{}, in {} over {}", place, now.call, now.axis);
}

// Weights are declared, never allocated.
void declare_model(const Config& config, const Coordinates& here) {
  ParameterStore store(here);
  ModelStage(config.model, Recompute::kNone, DType::kF32, store);
}

// Layers refuse bad options, and then bad splits, before MPI starts.
Layout layout_of(const Config& config, const Launch& launch) {
  declare_model(config, {});
  return make_layout(config, launch.rank, launch.size, [&](const Coordinates& here) -> std::string {
    try {
      declare_model(config, here);
    } catch (const ConfigError& refused) {
      return refused.what();
    }
    return "";
  });
}

}  // namespace

int on_ranks(const Config& config, const Body& body, const BeforeFiles& before_files) {
  const Launch launch = this_launch();
  const Layout layout = layout_of(config, launch);
  pin_to_own_cores(launch);
  World world(launch);
  if (launch.size == 1) {
    return run_body(config, world, make_mesh(config, layout, world), body, before_files);
  }
  std::shared_ptr<const Mesh> mesh;
  try {
    mesh = make_mesh(config, layout, world);
    return run_body(config, world, mesh, body, before_files);
  } catch (...) {
    const Station station{launch.rank, describe(layout.here), doing(mesh.get())};
    world.abort(report_failure(std::current_exception(), &station));
  }
}

}  // namespace weft
