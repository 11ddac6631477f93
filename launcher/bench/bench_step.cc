#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include <fmt/ranges.h>

#include "core/base/rng.h"
#include "core/files/safetensors.h"
#include "core/host_access.h"
#include "launcher/app/cli.h"
#include "launcher/app/commands.h"
#include "launcher/app/measure.h"
#include "launcher/app/peak_probes.h"
#include "launcher/app/progress.h"
#include "launcher/app/ranks.h"
#include "launcher/train/trainer.h"
#include "parallel/schedule_check.h"

namespace weft {
namespace {

struct BenchStepOptions {
  std::shared_ptr<ConfigArguments> config;
  std::string json, from, overlap;
  std::vector<std::string> versus;  // overrides of the baseline
  int steps = 15, warmup = 2, threads = 0;
};

// Uniform random tokens, or tokens of a file: i32 [steps, rows, sequence + 1].
class TokenSource {
 public:
  TokenSource(const Config& config, const std::string& from, int64_t steps)
      : config_(config), random_(static_cast<uint64_t>(config.train.seed), "bench tokens") {
    if (from.empty()) return;
    const std::string path = from + "/tokens.safetensors";
    file_ = std::make_unique<SafetensorsFile>(path);
    const ConstView tokens = file_->view("tokens");
    const Shape& s = tokens.shape;
    if (tokens.dtype != DType::kI32 || s.dims() != 3 || s[0] < steps ||
        s[1] != config.train.global_batch || s[2] != config.train.sequence + 1) {
      throw ConfigError(
          "{}: tokens are {} {}, asked for i32 [{} or more, {}, {}] (--warmup + --steps, "
          "train.global_batch, train.sequence + 1)",
          path, name_of(tokens.dtype), s, steps, config.train.global_batch,
          config.train.sequence + 1);
    }
    tokens_ = host<int32_t>(tokens);
    for (int64_t i = 0; i < s.elements(); ++i) {
      if (tokens_[i] >= 0 && tokens_[i] < config.model.vocab) continue;
      throw ConfigError("{}: token {} is {}, beyond model.vocab = {}", path, i, tokens_[i],
                        config.model.vocab);
    }
  }

  Batch operator()(Pool& pool, int64_t first, int64_t rows) const {
    const int64_t length = config_.train.sequence;
    Batch batch{.tokens = Tensor::empty(pool, {rows * length}, DType::kI32, Label::kData),
                .targets = Tensor::empty(pool, {rows * length}, DType::kI32, Label::kData),
                .documents = {0},
                .target_tokens = rows * length};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t <= length; ++t) {
        const int32_t token = token_at((first + r) * (length + 1) + t);
        if (t < length) host<int32_t>(batch.tokens)[r * length + t] = token;
        if (t > 0) host<int32_t>(batch.targets)[r * length + t - 1] = token;
      }
      batch.documents.push_back(static_cast<int32_t>((r + 1) * length));
    }
    return batch;
  }

 private:
  int32_t token_at(int64_t index) const {
    if (tokens_ != nullptr) return tokens_[index];
    return static_cast<int32_t>(
        random_.below(static_cast<uint64_t>(index), static_cast<uint64_t>(config_.model.vocab)));
  }
  const Config& config_;
  RandomStream random_;
  std::unique_ptr<SafetensorsFile> file_;
  const int32_t* tokens_ = nullptr;  // in the file
};

// Weights by the specification's names, which say "blocks." for "block.".
void load_weights(Trainer& trainer, const std::string& path) {
  const SafetensorsFile file(path);
  for (Parameter& p : trainer.parameters().all()) {
    std::string name = p.spec.name;
    if (name.starts_with("block.")) name = "blocks." + name.substr(6);
    const FileTensor& stored = file.at(name);
    if (!(stored.shape == p.shape)) {
      throw ConfigError("{}: {} has shape {}, but the config's model needs {}", path, name,
                        stored.shape, p.shape);
    }
    file.read_into(stored, p.master);
  }
  trainer.publish();
}

// High-water mark of this program's own memory (getrusage would include that of the parent before
// exec).
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

nlohmann::json memory_by_label(const Ledger& ledger) {
  nlohmann::json by_label;
  for (int i = 0; i < static_cast<int>(Label::kCount); ++i) {
    const auto label = static_cast<Label>(i);
    by_label[std::string(name_of(label))] = ledger.of(label).peak;
  }
  return by_label;
}

// Cost of communication per step. Bytes are summed over all ranks; seconds are spent inside calls,
// including the wait for other ranks and excluding overlapped transfers. On the pipe axis this
// includes the bubble.
struct Talk {
  struct Seconds {
    double mean = 0, max = 0;  // over the ranks
  };
  double share = 0;  // of the first rank's time
  std::map<std::string, int64_t> bytes = {};
  std::map<std::string, Seconds> seconds = {};

  nlohmann::json milliseconds() const {
    nlohmann::json out = nlohmann::json::object();
    for (const auto& [axis, s] : seconds)
      out[axis] = {{"mean", s.mean * 1e3}, {"max", s.max * 1e3}};
    return out;
  }
};

Talk talk_of(const Mesh& mesh, int steps, double seconds) {
  Talk talk{.share = mesh.tally().seconds() / seconds};
  std::string mine;  // ranks may have used different axes
  for (const auto& [axis, bytes] : mesh.tally().bytes_by_axis()) {
    mine += fmt::format("{} {} {}\n", axis, bytes, mesh.tally().of_axis(axis).seconds / steps);
  }
  for (const std::string& text : mesh.hosts().gather_texts(mine)) {
    std::istringstream lines(text);
    std::string axis;
    int64_t bytes = 0;
    for (double spent = 0; lines >> axis >> bytes >> spent;) {
      talk.bytes[axis] += bytes;
      Talk::Seconds& s = talk.seconds[axis];
      s.mean += spent / mesh.size();
      s.max = std::max(s.max, spent);
    }
  }
  for (auto& [axis, bytes] : talk.bytes) bytes /= steps;
  return talk;
}

// The idle share of the pipe rank that computes most, while a schedule runs.
struct Bubble {
  double measured = 0, predicted = 0;  // predicted: for equal stages
};

Bubble bubble_of(const Config& config, const Mesh& mesh, const PipeTimes& times) {
  const double mine[] = {times.busy, times.whole};
  const std::vector<double> all = mesh.hosts().gather(mine);
  double busiest = 0, whole = 0;
  for (size_t r = 0; r < all.size(); r += 2) {
    busiest = std::max(busiest, all[r]);
    whole = std::max(whole, all[r + 1]);
  }
  const IndexRange own =
      mesh.layout().micro_batches(config.train.global_batch / config.train.micro_batch);
  const PipeShape shape{config.parallel.pipe, static_cast<int>(own.size()),
                        config.parallel.virtual_stages};
  const std::vector<Plan> plans = plans_of(pipe_schedule(config.parallel.schedule), shape);
  return {whole > 0 ? 1 - busiest / whole : 0, simulate(plans, shape).bubble};
}

// Runs steps of one model from a fixed start, one at a time.
class Stepper {
 public:
  Stepper(const BenchStepOptions& o, const Config& config, Runtime& runtime,
          const RankContext& ranks, const TokenSource& source)
      : rows_(config.train.global_batch),
        source_(source),
        trainer_(config, runtime, ranks.mesh, {.overlap = o.overlap}) {
    if (o.from.empty())
      trainer_.initialize();
    else
      load_weights(trainer_, o.from + "/weights.safetensors");
    for (int i = 0; i < o.warmup; ++i) step();
  }
  void step() {
    const auto taken = static_cast<int64_t>(losses_.size());
    losses_.push_back(trainer_.step(taken, taken * rows_, std::cref(source_)).loss);
  }
  Trainer& trainer() { return trainer_; }
  const std::vector<double>& losses() const { return losses_; }

 private:
  int64_t rows_;
  const TokenSource& source_;
  Trainer trainer_;
  std::vector<double> losses_;
};

// The baseline: equal steps under other settings, in turns A-B-B-A.
struct Versus {
  Quartiles ratio;          // their time over ours
  bool same_losses = true;  // to the last bit
};

Versus compare(HostGroup& world, Stepper& ours, Stepper& theirs, int pairs) {
  const auto timed = [&](Stepper& stepper) {
    return [&] {
      world.barrier();
      stepper.step();
    };
  };
  Versus versus{.ratio = ratio(pairs, timed(ours), timed(theirs))};
  const size_t common = std::min(ours.losses().size(), theirs.losses().size());
  for (size_t i = 0; i < common; ++i) {
    versus.same_losses = versus.same_losses && ours.losses()[i] == theirs.losses()[i];
  }
  return versus;
}

// Results that the first rank prints and writes.
struct StepBench {
  const BenchStepOptions& options;
  const Config& config;
  Runtime& runtime;
  const Layout& layout;
  Quartiles time;
  double gflops, peak_before, peak_after;  // of all ranks
  Talk talk;
  std::vector<double> losses;
  int64_t resident_before, resident_peak;
  Bubble bubble;
  std::optional<Versus> versus;

  double tokens() const {
    return static_cast<double>(config.train.global_batch * config.train.sequence);
  }
  double peak() const { return 0.5 * (peak_before + peak_after); }
  double drift() const { return probe_drift(peak_before, peak_after); }

  void print() const {
    fmt::print(
        "{} {} {} threads, {}: {:.1f} ms/step ({:.1f} to {:.1f}), {} tok/s, {:.0f} GFLOP/s, "
        "mfu {:.0f} % of our GEMM ({:.0f}/{:.0f}), memory {}, loss {:.4f} -> {:.4f}\n",
        options.config->path(), config.train.precision, runtime.exec().threads.size(),
        name_of(runtime.exec().isa), time.median * 1e3, time.q1 * 1e3, time.q3 * 1e3,
        format_count(tokens() / time.median), gflops, 100 * gflops / peak(), peak_before,
        peak_after, format_bytes(runtime.ledger().total().peak), losses.front(), losses.back());
    if (layout.world > 1) {
      fmt::print("{}: {:.0f} % of the first rank's time in communication;",
                 product_text(layout.here), 100 * talk.share);
      for (const auto& [axis, bytes] : talk.bytes) fmt::print(" {} {}", axis, format_bytes(bytes));
      fmt::print(" per step, all ranks together\n");
      fmt::print("exposed, mean and longest of a rank:");
      for (const auto& [axis, s] : talk.seconds) {
        fmt::print(" {}{} {:.1f} {:.1f}", axis, axis == "pipe" ? " (its bubble too)" : "",
                   s.mean * 1e3, s.max * 1e3);
      }
      fmt::print(" ms per step\n");
    }
    if (config.parallel.pipe > 1) {
      fmt::print("{}: {:.0f} % bubble measured, {:.0f} % = {} with equal stages\n",
                 config.parallel.schedule, 100 * bubble.measured, 100 * bubble.predicted,
                 bubble_formula(pipe_schedule(config.parallel.schedule)));
    }
    if (versus) {
      fmt::print("versus {}: {:.3f} times our time ({:.3f} to {:.3f}, {} pairs), losses {}\n",
                 fmt::join(options.versus, " "), versus->ratio.median, versus->ratio.q1,
                 versus->ratio.q3, versus->ratio.repetitions,
                 versus->same_losses ? "the same" : "DIFFERENT");
    }
    if (drift() > kNoisy) {
      fmt::print(
          "noisy: our GEMM ran at {:.0f} GFLOP/s before the steps and at "
          "{:.0f} after them, {:.0f} % apart; measure again on idle cores\n",
          peak_before, peak_after, 100 * drift());
    }
  }

  nlohmann::json json() const {
    nlohmann::json out = common();
    if (!versus) return out;
    out["versus"] = {{"overrides", options.versus},
                     {"ratio", to_json(versus->ratio)},
                     {"same_losses", versus->same_losses}};
    return out;
  }

  nlohmann::json common() const {
    return {{"bench", "step"},
            {"step_ms", milliseconds(time)},
            {"tokens_per_s", tokens() / time.median},
            {"mfu", gflops / peak()},
            {"model_gflops", gflops},
            {"peak_gflops_before", peak_before},
            {"peak_gflops_after", peak_after},
            {"probe_drift", drift()},
            {"peak_bytes", runtime.ledger().total().peak},
            {"peak_bytes_by_label", memory_by_label(runtime.ledger())},
            {"peak_resident_bytes", resident_peak},
            {"resident_bytes_before", resident_before},
            {"losses", losses},
            {"comm_bytes", talk.bytes},
            {"comm_ms", talk.milliseconds()},
            {"comm_share", talk.share},
            {"bubble", {{"measured", bubble.measured}, {"formula", bubble.predicted}}},
            {"ranks", layout.world},
            {"threads", runtime.exec().threads.size()},
            {"isa", name_of(runtime.exec().isa)},
            {"config", resolved(config)}};
  }
};

int run_on_rank(const BenchStepOptions& o, const Config& config, const std::optional<Config>& other,
                const RankContext& ranks) {
  const TokenSource source(config, o.from, o.warmup + (other ? 3 : 1) * o.steps);
  Runtime runtime(o.threads > 0 ? o.threads : ranks.threads);
  Exec& exec = runtime.exec();
  HostGroup& world = ranks.mesh->hosts();
  const auto peak = [&] {
    world.barrier();
    return world.sum(peak_gflops(exec.threads, compute_type(config.train)));
  };
  const double peak_before = peak();
  const int64_t resident_before = peak_resident_bytes();
  Stepper ours(o, config, runtime, ranks, source);
  Trainer& trainer = ours.trainer();
  ranks.mesh->tally().reset();
  trainer.reset_pipe_times();
  const auto start = std::chrono::steady_clock::now();
  const Quartiles time = measure(o.steps, [&] { ours.step(); });
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Talk talk = talk_of(*ranks.mesh, o.steps, seconds);
  const Bubble bubble = bubble_of(config, *ranks.mesh, trainer.pipe_times());
  const double peak_after = peak();
  const int64_t resident_peak = peak_resident_bytes();
  std::optional<Versus> versus;
  if (other) {
    Stepper theirs(o, *other, runtime, ranks, source);
    versus = compare(world, ours, theirs, o.steps);
  }
  const StepBench bench{o,
                        config,
                        runtime,
                        ranks.mesh->layout(),
                        time,
                        trainer.flops_per_step() / time.median / 1e9,
                        peak_before,
                        peak_after,
                        talk,
                        ours.losses(),
                        resident_before,
                        resident_peak,
                        bubble,
                        versus};
  if (ranks.mesh->rank() != 0) return 0;
  bench.print();
  if (!o.json.empty()) write_json(o.json, bench.json());
  return 0;
}

Config at_constant_rate(Config config) {
  config.optimizer.schedule = "constant";
  config.optimizer.warmup = 0;
  return config;
}

// The settings that both sides of a comparison must share: ranks and tokens.
std::string frame_of(const Config& c) {
  return fmt::format(
      "tensor {} pipe {} sequence {} expert {} expert_tensor {}, batch {} x {}, vocab {}",
      c.parallel.tensor, c.parallel.pipe, c.parallel.sequence, c.parallel.expert,
      c.parallel.expert_tensor, c.train.global_batch, c.train.sequence, c.model.vocab);
}

int run(const BenchStepOptions& o) {
  const Config config = at_constant_rate(o.config->load());
  std::optional<Config> other;
  if (!o.versus.empty()) other = at_constant_rate(o.config->load(o.versus));
  if (other && frame_of(*other) != frame_of(config)) {
    throw ConfigError("--versus {}: both sides need equal ranks and tokens; {} and {}",
                      fmt::join(o.versus, " "), frame_of(config), frame_of(*other));
  }
  return on_ranks(config,
                  [&](const RankContext& ranks) { return run_on_rank(o, config, other, ranks); });
}

}  // namespace

void add_bench_step(CLI::App& bench) {
  auto o = std::make_shared<BenchStepOptions>();
  CLI::App* command = bench.add_subcommand(
      "step", "Whole training steps on random tokens, at a constant learning rate");
  o->config = add_config_arguments(*command);
  command->footer(
      "Example: weft bench step configs/tiny.toml train.precision=f32 --json step.json\n"
      "JSON: step_ms {median, q1, q3, repetitions}, tokens_per_s, mfu (share of our "
      "own 1024-cubed GEMM, probed before and after), probe_drift (above 0.1: noisy), "
      "peak_bytes (accounted), peak_resident_bytes, losses, comm_bytes by axis (per "
      "step, all ranks together), comm_ms by axis {mean, max over ranks} (per step, "
      "inside calls: what is not hidden; pipe: with its bubble), comm_share (of the "
      "first rank's time, in calls to others), bubble {measured, formula} (idle share "
      "of the pipe rank that computes most), ranks. Under mpirun on its ranks.");
  command->add_option("--steps", o->steps, "Measured steps")->check(CLI::PositiveNumber);
  command->add_option("--warmup", o->warmup, "Unmeasured steps before the measured ones")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threads", o->threads, "0: every core");
  command->add_option(
      "--from", o->from,
      "Folder with weights.safetensors and tokens.safetensors (i32 [steps, global_batch, "
      "sequence + 1]): takes the steps that another program took from there");
  command
      ->add_option("--versus", o->versus,
                   "key=value: measures the same steps with it too, in turns A-B-B-A "
                   "(--steps pairs); JSON: versus {ratio (their time over ours), same_losses}")
      ->allow_extra_args(false);
  command->add_option("--overlap", o->overlap,
                      "sums, weights, rows: with parallel.overlap only these overlap, to measure "
                      "each by itself");
  command->add_option("--json", o->json, "Writes the result to this file");
  command->final_callback([o] {
    if (o->config->explained()) return;
    if (const int code = run(*o); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace weft
