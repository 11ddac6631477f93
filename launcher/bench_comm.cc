#include <array>
#include <numeric>

#include "launcher/bench_support.h"
#include "launcher/commands.h"
#include "launcher/progress.h"
#include "launcher/runtime.h"
#include "parallel/agree.h"
#include "parallel/world.h"

namespace weft {
namespace {

struct BenchCommOptions {
  std::string json;
  int64_t largest = 64 << 20;  // bytes
  int repetitions = 9;
};

// Buffers of one size and the collectives over them. `bytes` is what an all_reduce reduces; the
// others have it as the whole that is gathered or scattered.
class Case {
 public:
  Case(Communicator& comm, Exec& exec, int64_t bytes)
      : comm_(comm),
        exec_(exec),
        part_(bytes / 4 / comm.size()),
        whole_(exec.zeros({comm.size(), part_})),
        other_(exec.zeros({comm.size(), part_})),
        rows_(static_cast<size_t>(comm.size()), 1) {}

  void all_reduce() { comm_.all_reduce(exec_, whole_, ReduceOp::kSum); }
  void all_gather() { comm_.all_gather(exec_, whole_.row(comm_.rank()), whole_); }
  void reduce_scatter() { comm_.reduce_scatter(exec_, whole_, whole_.row(comm_.rank())); }
  void all_to_all() { comm_.all_to_all_v(exec_, whole_, rows_, other_, rows_); }
  void ring() {
    const int n = comm_.size(), next = (comm_.rank() + 1) % n, before = (comm_.rank() + n - 1) % n;
    const std::array<Transfer, 2> both = {
        {{Transfer::Kind::kSend, next, whole_}, {Transfer::Kind::kRecv, before, other_}}};
    comm_.transfer(exec_, both);
  }

 private:
  Communicator& comm_;
  Exec& exec_;
  int64_t part_;
  Tensor whole_, other_;
  std::vector<int64_t> rows_;
};

using Call = void (Case::*)();
constexpr std::array<std::pair<const char*, Call>, 5> kCalls = {
    {{"all_reduce", &Case::all_reduce},
     {"all_gather", &Case::all_gather},
     {"reduce_scatter", &Case::reduce_scatter},
     {"all_to_all", &Case::all_to_all},
     {"ring", &Case::ring}}};

// Seconds of the slowest rank, which is what a step waits for.
Quartiles measure_call(Communicator& comm, Exec& exec, Case& on, Call call, int repetitions) {
  (on.*call)();
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    comm.barrier();
    const double mine = seconds_of([&] { (on.*call)(); });
    const std::vector<double> all = gather_numbers(exec, comm, std::span<const double>(&mine, 1));
    seconds.push_back(*std::max_element(all.begin(), all.end()));
  }
  return quartiles(std::move(seconds));
}

void run(const BenchCommOptions& o) {
  World world(this_launch());
  Communicator& comm = world.all();
  Runtime runtime(world.threads());
  Exec& exec = runtime.exec();
  nlohmann::json rows = nlohmann::json::array();
  if (world.rank() == 0)
    fmt::print("{} ranks, GB/s (bytes of the whole over time), microseconds\n", comm.size());
  for (int64_t bytes = 1024; bytes <= o.largest; bytes *= 8) {
    Case on(comm, exec, std::max<int64_t>(bytes, 4 * comm.size()));
    nlohmann::json row = {{"bytes", bytes}};
    std::string line = fmt::format("{:>8}", format_bytes(bytes));
    for (const auto& [name, call] : kCalls) {
      const Quartiles time = measure_call(comm, exec, on, call, o.repetitions);
      line += fmt::format("  {} {:.2f} ({:.0f})", name,
                          static_cast<double>(bytes) / time.median / 1e9, time.median * 1e6);
      row[name] = milliseconds(time);
    }
    if (world.rank() == 0) fmt::print("{}\n", line);
    rows.push_back(std::move(row));
  }
  if (world.rank() != 0 || o.json.empty()) return;
  write_json(o.json,
             {{"bench", "comm"}, {"ranks", comm.size()}, {"mpi", mpi_version()}, {"sizes", rows}});
}

}  // namespace

void add_bench_comm(CLI::App& bench) {
  auto o = std::make_shared<BenchCommOptions>();
  CLI::App* command = bench.add_subcommand("comm", "Collectives over all ranks, by size");
  command->footer(
      "Example: launcher/run -n 2 build/weft bench comm --json comm.json\n"
      "JSON: sizes [{bytes, all_reduce, all_gather, reduce_scatter, all_to_all, ring}], each the "
      "milliseconds {median, q1, q3, repetitions} of the slowest rank.");
  command->add_option("--largest", o->largest, "Bytes of the largest buffer")
      ->check(CLI::PositiveNumber);
  command->add_option("--repetitions", o->repetitions, "Of every measurement")
      ->check(CLI::PositiveNumber);
  command->add_option("--json", o->json, "Writes the result to this file");
  command->callback([o] { run(*o); });
}

}  // namespace weft
