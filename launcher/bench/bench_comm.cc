#include <array>
#include <numeric>
#include <optional>

#include "core/config/config.h"
#include "core/config/config_tree.h"
#include "kernels/rows/elementwise.h"
#include "launcher/app/commands.h"
#include "launcher/app/measure.h"
#include "launcher/app/progress.h"
#include "launcher/app/runtime.h"
#include "parallel/comm/world.h"
#include "parallel/layout/layout.h"

namespace weft {
namespace {

struct BenchCommOptions {
  std::vector<std::string> arguments;  // CONFIG, key=value
  std::string json;
  int64_t largest = 64 << 20;  // bytes
  int repetitions = 9;
};

// Buffers of one size and the collectives over them. `bytes` is the size of the reduced tensor of
// an all_reduce, and of the whole tensor of the other collectives.
class CommCase {
 public:
  CommCase(Communicator& comm, Exec& exec, int64_t bytes)
      : comm_(comm),
        mpi_(dynamic_cast<MpiComm*>(&comm)),
        exec_(exec),
        part_(std::max<int64_t>(1, bytes / 4 / comm.size())),
        whole_(exec.zeros({comm.size(), part_})),
        other_(exec.zeros({comm.size(), part_})),
        rows_(static_cast<size_t>(comm.size()), 1) {}

  bool has_ways() const { return mpi_ != nullptr && comm_.size() > 1; }
  int64_t bytes() const { return whole_.bytes(); }

  // Rewrites the data to send: in a step it has just been computed and is in this core's cache.
  void renew() {
    value_ = value_ == 1.0f ? 2.0f : 1.0f;
    kernels::fill(exec_, whole_, value_);
  }

  void all_reduce() { comm_.all_reduce(exec_, whole_, ReduceOp::kSum); }
  void all_gather() { comm_.all_gather(exec_, whole_.row(comm_.rank()), whole_); }
  void reduce_scatter() { comm_.reduce_scatter(exec_, whole_, other_.row(comm_.rank())); }
  void all_to_all() { comm_.all_to_all_v(exec_, whole_, rows_, other_, rows_); }
  void ring() {
    const int n = comm_.size(), next = (comm_.rank() + 1) % n, before = (comm_.rank() + n - 1) % n;
    const std::array<Transfer, 2> both = {
        {{Transfer::Kind::kSend, next, whole_}, {Transfer::Kind::kRecv, before, other_}}};
    comm_.transfer(exec_, both);
  }
  // Each algorithm of a sum, independent of the choice of `all_reduce`.
  void one_exchange() { mpi_->sum(exec_, whole_, SumWay::kOneExchange); }
  void two_exchanges() { mpi_->sum(exec_, whole_, SumWay::kTwoExchanges); }
  void mpi_all_reduce() { mpi_->sum(exec_, whole_, SumWay::kLibrary); }
  void mpi_reduce_scatter() { mpi_->sum_scattered(whole_, other_.row(comm_.rank())); }

 private:
  Communicator& comm_;
  MpiComm* mpi_;  // null: one rank alone
  Exec& exec_;
  int64_t part_;
  Tensor whole_, other_;
  std::vector<int64_t> rows_;
  float value_ = 0;
};

using Call = void (CommCase::*)();
constexpr std::array<std::pair<const char*, Call>, 5> kCalls = {
    {{"all_reduce", &CommCase::all_reduce},
     {"all_gather", &CommCase::all_gather},
     {"reduce_scatter", &CommCase::reduce_scatter},
     {"all_to_all", &CommCase::all_to_all},
     {"ring", &CommCase::ring}}};

// Time of the second over the first: above 1 the first is faster.
struct Rivals {
  const char* name;
  Call ours, theirs;
  int64_t largest;  // bytes: never a good choice for larger sizes
};
constexpr int64_t kAlways = int64_t{1} << 62;
constexpr std::array<Rivals, 3> kRivals = {
    {{"mpi_all_reduce", &CommCase::all_reduce, &CommCase::mpi_all_reduce, kAlways},
     {"mpi_reduce_scatter", &CommCase::reduce_scatter, &CommCase::mpi_reduce_scatter, kAlways},
     {"two_exchanges", &CommCase::one_exchange, &CommCase::two_exchanges, 8 << 20}}};

// Seconds of the slowest rank, for which a step waits.
double slowest(Communicator& comm, CommCase& on, Call call) {
  on.renew();
  comm.hosts().barrier();
  const double mine = seconds_of([&] { (on.*call)(); });
  const std::vector<double> all = comm.hosts().gather(std::span<const double>(&mine, 1));
  return *std::max_element(all.begin(), all.end());
}

Quartiles measure_call(Communicator& comm, CommCase& on, Call call, int repetitions) {
  (on.*call)();
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) seconds.push_back(slowest(comm, on, call));
  return quartiles(std::move(seconds));
}

// In pairs A-B-B-A, so that other load of the machine affects both equally.
Quartiles compare(Communicator& comm, CommCase& on, const Rivals& rivals, int pairs) {
  (on.*rivals.ours)();
  (on.*rivals.theirs)();
  std::vector<double> ratios;
  for (int i = 0; i < pairs; ++i) {
    const double a1 = slowest(comm, on, rivals.ours), b1 = slowest(comm, on, rivals.theirs),
                 b2 = slowest(comm, on, rivals.theirs), a2 = slowest(comm, on, rivals.ours);
    ratios.push_back((b1 + b2) / (a1 + a2));
  }
  return quartiles(std::move(ratios));
}

// One size over one group, as a row of the table and of the file.
nlohmann::json measure_size(Communicator& comm, Exec& exec, int64_t bytes, int repetitions,
                            bool speaks) {
  CommCase on(comm, exec, bytes);
  nlohmann::json row = {{"bytes", bytes}};
  std::string line = fmt::format("{:>8}", format_bytes(bytes));
  for (const auto& [name, call] : kCalls) {
    const Quartiles time = measure_call(comm, on, call, repetitions);
    line += fmt::format("  {} {:.2f} ({:.0f})", name,
                        static_cast<double>(bytes) / time.median / 1e9, time.median * 1e6);
    row[name] = milliseconds(time);
  }
  if (on.has_ways()) line += "  |";
  for (const Rivals& rivals : kRivals) {
    if (!on.has_ways() || bytes > rivals.largest) continue;
    const Quartiles ratio = compare(comm, on, rivals, repetitions);
    line += fmt::format("  {} {:.2f}", rivals.name, ratio.median);
    row["over_ours"][rivals.name] = to_json(ratio);
  }
  if (speaks) fmt::print("{}\n", line);
  return row;
}

nlohmann::json measure_group(Communicator& comm, Exec& exec, const BenchCommOptions& o,
                             bool speaks) {
  nlohmann::json rows = nlohmann::json::array();
  for (int64_t bytes = 1024; bytes <= o.largest; bytes *= 8) {
    rows.push_back(measure_size(comm, exec, bytes, o.repetitions, speaks));
  }
  return rows;
}

// Layout of a config with its model, or of [parallel] alone.
Layout layout_of(const BenchCommOptions& o, const Launch& launch) {
  std::optional<std::string> path;
  std::vector<std::string> overrides;
  for (const std::string& argument : o.arguments) {
    if (argument.find('=') != std::string::npos) {
      overrides.push_back(argument);
    } else if (path) {
      throw ConfigError("'{}' and '{}' are two configs; give at most one", *path, argument);
    } else {
      path = argument;
    }
  }
  if (path) return make_layout(load_config(*path, overrides), launch.rank, launch.size);
  ConfigNode tree = parse_toml("", "command line");
  for (const std::string& text : overrides) apply_override(tree, text);
  ParallelConfig p;
  read_fields(tree, [&](FieldVisitor& f) { f.table("parallel", p, "degrees"); });
  const int dense = p.tensor * p.sequence * p.pipe, experts = p.expert * p.expert_tensor * p.pipe;
  if (launch.size % dense != 0 || launch.size % experts != 0) {
    throw ConfigError(
        "tensor {} x sequence {} x pipe {} = {} and expert {} x expert_tensor {} x pipe {} = {} "
        "must both divide the {} ranks; the nearest number of ranks is {}",
        p.tensor, p.sequence, p.pipe, dense, p.expert, p.expert_tensor, p.pipe, experts,
        launch.size, std::lcm(dense, experts));
  }
  return {p, launch.rank, launch.size, coordinates_of(p, launch.rank, launch.size)};
}

void run(const BenchCommOptions& o) {
  const Launch launch = this_launch();
  const Layout layout = layout_of(o, launch);
  World world(launch);
  Runtime runtime(world.threads());
  const bool first = world.rank() == 0;
  const auto say = [&](const std::string& text) {
    if (first) fmt::print("{}\n", text);
  };
  say(fmt::format(
      "GB/s (bytes of the whole over time), microseconds; after |: slowdown of the alternatives\n"
      "all {} ranks",
      world.size()));
  const nlohmann::json all = measure_group(world.all(), runtime.exec(), o, first);
  nlohmann::json axes = nlohmann::json::object();
  for (int a = 0; a < static_cast<int>(Axis::kCount); ++a) {
    const auto axis = static_cast<Axis>(a);
    const int size = layout.here[axis].size;
    if (size == 1) continue;
    const std::string name(name_of(axis));
    const std::vector<int> ranks = layout.group({&axis, 1});
    // All other groups of this axis measure at the same time, as in a step.
    const auto index = std::find(ranks.begin(), ranks.end(), world.rank()) - ranks.begin();
    const auto group = world.split(ranks.front(), static_cast<int>(index), name);
    say(fmt::format("{}: {} groups of {}", name, world.size() / size, size));
    axes[name] = {{"ranks", size}, {"sizes", measure_group(*group, runtime.exec(), o, first)}};
  }
  if (!first || o.json.empty()) return;
  write_json(o.json, {{"bench", "comm"},
                      {"ranks", world.size()},
                      {"mpi", mpi_version()},
                      {"sizes", all},
                      {"axes", axes}});
}

}  // namespace

void add_bench_comm(CLI::App& bench) {
  auto o = std::make_shared<BenchCommOptions>();
  CLI::App* command =
      bench.add_subcommand("comm", "Collectives by size, over all ranks and over each axis");
  command->footer(
      "Example: launcher/run -n 4 build/weft bench comm parallel.tensor=2 --json comm.json\n"
      "JSON: sizes (all ranks) and axes.NAME.sizes, [{bytes, all_reduce, all_gather, "
      "reduce_scatter, all_to_all, ring}], each the milliseconds {median, q1, q3, repetitions} of "
      "the slowest rank, and over_ours {mpi_all_reduce, mpi_reduce_scatter (MPI's own), "
      "two_exchanges (of an all_reduce, over one)}: ratios of times, measured in pairs A-B-B-A.");
  command->add_option("arguments", o->arguments,
                      "A config, parallel.KEY=VALUE; default: all ranks are data ranks");
  command->add_option("--largest", o->largest, "Bytes of the largest buffer")
      ->check(CLI::PositiveNumber);
  command->add_option("--repetitions", o->repetitions, "Repetitions of every measurement")
      ->check(CLI::PositiveNumber);
  command->add_option("--json", o->json, "Writes the result to this file");
  command->callback([o] { run(*o); });
}

}  // namespace weft
