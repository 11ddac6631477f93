#include <functional>
#include <memory>
#include <optional>

#include "core/base/rng.h"
#include "core/host_access.h"
#include "kernels/matrix/cpu/blas_library.h"
#include "launcher/app/commands.h"
#include "launcher/app/measure.h"
#include "launcher/app/peak_probes.h"
#include "launcher/app/runtime.h"
#include "launcher/bench/bench_routing.h"
#include "layers/moe/experts.h"
#include "parallel/parameter_values.h"

namespace weft {
namespace {

using kernels::BlasLibrary;
using Work = std::function<void()>;

struct BenchMoeOptions {
  int64_t hidden = 1024, experts = 64, active = 8, width = 896;
  std::vector<int64_t> tokens = {2048, 8192};
  std::string precision = "bf16", compute = "all", json, mkl;
  double skew = kRealisticSkew;
  int threads = 0, repetitions = 3;
};

Tensor normal(Exec& exec, std::string_view name, Shape shape, DType dtype) {
  const RandomStream stream(1, name);
  Tensor t = exec.empty(shape, dtype);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const auto x = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
    if (dtype == DType::kF32)
      host<float>(t)[i] = x;
    else
      host<bf16>(t)[i] = to_bf16(x);
  }
  return t;
}

// One implementation of the experts. All of a run share the weights.
struct Way {
  std::string name;
  DType type;
  std::unique_ptr<Experts> experts;
};

// The work of an implementation on one set of tokens.
struct Task {
  Exec& exec;
  const Experts& experts;
  const Tensor &x, &dy;
  const Routing& routing;

  void forward() const {
    SavedStack saved;
    experts.forward(exec, x, routing, saved);
  }
  void both() const {
    SavedStack saved;
    experts.forward(exec, x, routing, saved);
    experts.backward(exec, dy, routing, saved);
  }
};

// Times of two tasks measured A-B-B-A, and the ratio b / a of every round.
struct Pair {
  Quartiles a, b, ratio;
};
Pair time_pair(int rounds, Clock clock, const Work& a, const Work& b) {
  std::vector<double> as, bs, ratios;
  for (int i = 0; i < rounds; ++i) {
    const double a1 = seconds_of(a, clock), b1 = seconds_of(b, clock);
    const double b2 = seconds_of(b, clock), a2 = seconds_of(a, clock);
    as.insert(as.end(), {a1, a2});
    bs.insert(bs.end(), {b1, b2});
    ratios.push_back((b1 + b2) / (a1 + a2));
  }
  return {quartiles(as), quartiles(bs), quartiles(ratios)};
}

class MoeBench {
 public:
  explicit MoeBench(const BenchMoeOptions& options)
      : options_(options),
        type_(options.precision == "f32" ? DType::kF32 : DType::kBF16),
        runtime_(options.threads) {
    const Build build{.store = store_, .scope = "", .hidden = options.hidden, .compute = type_};
    auto grouped = std::make_unique<Experts>(build, options.experts, options.width);
    store_.allocate(runtime_.pool(), type_, ParameterStore::Gradients::kAllocate);
    initialize(exec(), store_, 1);
    publish(exec(), store_);
    const ExpertWeights weights = grouped->weights();
    if (wanted("grouped")) ways_.push_back({"grouped", type_, std::move(grouped)});
    add_way("loop", make_loop_experts(weights), weights, type_);
    add_way("block_sparse", make_block_sparse_experts(weights), weights, type_);
    if (wanted("loop")) add_libraries(weights);
  }

  nlohmann::json run() {
    nlohmann::json out = nlohmann::json::array();
    for (const int64_t tokens : options_.tokens) out.push_back(measure(tokens));
    return out;
  }
  Exec& exec() { return runtime_.exec(); }
  Clock clock() { return exec().threads.size() == 1 ? Clock::kProcessor : Clock::kWall; }

 private:
  bool wanted(const std::string& way) const {
    return options_.compute == "all" || options_.compute == way;
  }

  void add_way(const std::string& name, std::unique_ptr<ExpertCompute> compute,
               const ExpertWeights& weights, DType type) {
    if (!wanted(name) && !name.starts_with("loop_")) return;
    ways_.push_back({name, type,
                     std::make_unique<Experts>(weights, kernels::FfnActivation::kSwiglu, type,
                                               std::move(compute))});
  }

  // A library without bf16 products computes in f32, on f32 weights and activations. (MKL's bf16
  // product writes f32 and would need conversions between products, so its f32 product is used.)
  void add_libraries(const ExpertWeights& weights) {
    if (auto library = BlasLibrary::load_default(exec().isa)) {
      libraries_.push_back(std::move(library));
    }
    if (!options_.mkl.empty()) libraries_.push_back(BlasLibrary::load_mkl(options_.mkl));
    f32_in_ = weights.in;
    f32_in_.value = weights.in.master;
    f32_down_ = weights.down;
    f32_down_.value = weights.down.master;
    for (const auto& library : libraries_) {
      const PlainGemm gemm = [&library = *library](Exec& exec, ConstView a, ConstView b, View c,
                                                   kernels::GemmOptions options) {
        library.gemm(exec, a, b, c, options);
      };
      const ExpertWeights f32{f32_in_, f32_down_};
      add_way("loop_" + library->name(), make_loop_experts(f32, gemm), f32, DType::kF32);
    }
  }

  nlohmann::json measure(int64_t tokens) {
    const RoutingShape shape{tokens, options_.experts, options_.active};
    const Routing skewed = skewed_routing(exec(), shape, options_.skew);
    const Routing balanced = balanced_routing(exec(), shape);
    const Tensor x = normal(exec(), "x", {tokens, options_.hidden}, type_);
    const Tensor x32 = normal(exec(), "x", {tokens, options_.hidden}, DType::kF32);
    const Tensor dy = normal(exec(), "dy", {tokens, options_.hidden}, DType::kF32);
    const double peak_before = peak_gflops(exec().threads, type_);
    const double flops =
        static_cast<double>(tokens * options_.active) * ways_.front().experts->flops_per_pair();
    nlohmann::json out = {{"tokens", tokens}, {"max_over_mean", max_over_mean(skewed)}};
    fmt::print("\n{} tokens, {} rows, fullest expert {:.2f} times the mean; ms, quartiles\n",
               tokens, tokens * options_.active, max_over_mean(skewed));
    const auto task = [&](const Way& way, const Routing& routing) {
      return Task{exec(), *way.experts, way.type == DType::kF32 ? x32 : x, dy, routing};
    };
    const Way& first = ways_.front();
    const Task balance = task(first, balanced), imbalance = task(first, skewed);
    imbalance.both();  // packs the weights
    const Pair forward = pair(out["imbalance"], "forward", balance, imbalance, &Task::forward);
    const Pair both = pair(out["imbalance"], "both", balance, imbalance, &Task::both);
    print(first.name + ", balanced", forward.a, both.a);
    print(first.name, forward.b, both.b);
    fmt::print("  price of imbalance: forward {:.3f}, forward+backward {:.3f}\n",
               forward.ratio.median, both.ratio.median);
    out["ways"][first.name] = {{"forward_ms", milliseconds(forward.b)},
                               {"both_ms", milliseconds(both.b)}};
    for (size_t i = 1; i < ways_.size(); ++i) {
      compare(out, imbalance, first, task(ways_[i], skewed), ways_[i]);
    }
    rates(out, flops, peak_before, peak_gflops(exec().threads, type_));
    return out;
  }

  Pair pair(nlohmann::json& out, const std::string& key, const Task& a, const Task& b,
            void (Task::*work)() const) {
    const Pair times = time_pair(
        options_.repetitions, clock(), [&] { (a.*work)(); }, [&] { (b.*work)(); });
    out[key] = to_json(times.ratio);
    return times;
  }

  void compare(nlohmann::json& out, const Task& first_task, const Way& first,
               const Task& other_task, const Way& other) {
    const std::string key = other.name + "_over_" + first.name;
    other_task.both();
    const Pair forward = pair(out[key], "forward", first_task, other_task, &Task::forward);
    const Pair both = pair(out[key], "both", first_task, other_task, &Task::both);
    print(other.name, forward.b, both.b);
    fmt::print("  {} over {}: forward {:.2f}, forward+backward {:.2f}\n", other.name, first.name,
               forward.ratio.median, both.ratio.median);
    out["ways"][other.name] = {{"forward_ms", milliseconds(forward.b)},
                               {"both_ms", milliseconds(both.b)},
                               {"precision", name_of(other.type)}};
  }

  static void print(const std::string& name, const Quartiles& forward, const Quartiles& both) {
    fmt::print(
        "{:20} forward {:8.1f} ({:.1f} to {:.1f})   forward+backward {:8.1f} ({:.1f} to {:.1f})\n",
        name, forward.median * 1e3, forward.q1 * 1e3, forward.q3 * 1e3, both.median * 1e3,
        both.q1 * 1e3, both.q3 * 1e3);
  }

  // Backward is two products for every one of forward.
  void rates(nlohmann::json& out, double flops, double peak_before, double peak_after) {
    const double peak = 0.5 * (peak_before + peak_after);
    for (auto& [name, way] : out["ways"].items()) {
      const double forward = flops / way["forward_ms"]["median"].get<double>() / 1e6;
      const double both = 3 * flops / way["both_ms"]["median"].get<double>() / 1e6;
      way["forward_gflops"] = forward;
      way["both_gflops"] = both;
      way["forward_share_of_gemm"] = forward / peak;
      way["both_share_of_gemm"] = both / peak;
      fmt::print(
          "{:20} {:7.1f} and {:7.1f} GFLOP/s, {:.0f} % and {:.0f} % of our 1024-cubed GEMM\n", name,
          forward, both, 100 * forward / peak, 100 * both / peak);
    }
    out["peak_gflops_before"] = peak_before;
    out["peak_gflops_after"] = peak_after;
    fmt::print("our GEMM: {:.0f} before, {:.0f} after\n", peak_before, peak_after);
  }

  BenchMoeOptions options_;
  DType type_;
  Runtime runtime_;
  ParameterStore store_;
  Parameter f32_in_, f32_down_;  // the weights with their f32 values
  std::vector<std::unique_ptr<BlasLibrary>> libraries_;
  std::vector<Way> ways_;
};

void run(const BenchMoeOptions& o) {
  MoeBench bench(o);
  fmt::print("{} experts of width {}, {} active, hidden {}, {}, {} threads, {}\n", o.experts,
             o.width, o.active, o.hidden, o.precision, bench.exec().threads.size(),
             name_of(bench.exec().isa));
  const nlohmann::json sizes = bench.run();
  if (o.json.empty()) return;
  write_json(o.json, {{"bench", "moe"},
                      {"hidden", o.hidden},
                      {"experts", o.experts},
                      {"active", o.active},
                      {"width", o.width},
                      {"precision", o.precision},
                      {"skew", o.skew},
                      {"threads", bench.exec().threads.size()},
                      {"isa", name_of(bench.exec().isa)},
                      {"sizes", sizes}});
}

}  // namespace

void add_bench_moe(CLI::App& bench) {
  auto o = std::make_shared<BenchMoeOptions>();
  CLI::App* command = bench.add_subcommand("moe",
                                           "Experts of a mixture (without its router) in every "
                                           "implementation, under a skewed and a balanced routing");
  command->footer(
      "Example: weft bench moe --tokens 2048 --precision bf16 --json moe.json\n"
      "Ratios are taken A-B-B-A, repetitions times; above "
      "1: the first is faster. Routings are functions\n"
      "of the shape: tokens draw experts without replacement "
      "with chances (1 + rank)^-skew, or all evenly.\n"
      "loop_openblas and loop_mkl are the loop over that library's products, in f32.\n"
      "JSON: sizes [ {tokens, max_over_mean, imbalance "
      "{forward, both} (skewed time over balanced time),\n"
      "ways {NAME: forward_ms, both_ms, forward_gflops, both_gflops, forward_share_of_gemm,\n"
      "both_share_of_gemm}, loop_over_grouped, "
      "block_sparse_over_grouped, loop_openblas_over_grouped\n"
      "{forward, both}, peak_gflops_before, peak_gflops_after} "
      "]; \"both\" is forward and backward; times\n"
      "and ratios are {median, q1, q3, repetitions}.");
  command->add_option("--tokens", o->tokens, "Tokens of a micro-batch, one or several")
      ->check(CLI::PositiveNumber);
  command->add_option("--hidden", o->hidden, "Width of the model")->check(CLI::PositiveNumber);
  command->add_option("--experts", o->experts, "Experts")->check(CLI::PositiveNumber);
  command->add_option("--active", o->active, "Experts each token visits")
      ->check(CLI::PositiveNumber);
  command->add_option("--width", o->width, "Width of one expert")->check(CLI::PositiveNumber);
  command->add_option("--precision", o->precision, "Of activations and weights")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command->add_option("--compute", o->compute, "One implementation, or all of them against grouped")
      ->check(CLI::IsMember({"grouped", "loop", "block_sparse", "all"}));
  command
      ->add_option("--skew", o->skew, "Exponent of the popularity of experts; 0: by chance alone")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threads", o->threads, "0: every core");
  command->add_option("--repetitions", o->repetitions, "Rounds of A-B-B-A")
      ->check(CLI::PositiveNumber);
  command->add_option("--mkl", o->mkl, "Path of libmkl_rt.so, to loop over its products too");
  command->add_option("--json", o->json, "Writes the result to this file");
  command->callback([o] { run(*o); });
}

}  // namespace weft
