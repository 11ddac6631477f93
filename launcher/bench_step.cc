#include <fstream>
#include <functional>

#include "core/rng.h"
#include "core/safetensors.h"
#include "launcher/bench_support.h"
#include "launcher/cli.h"
#include "launcher/commands.h"
#include "launcher/progress.h"
#include "launcher/trainer.h"

namespace weft {
namespace {

struct BenchStepOptions {
  std::shared_ptr<ConfigArguments> config;
  std::string json, from;
  int steps = 15, warmup = 2, threads = 0;
};

// Uniform random tokens, or those of a file: i32 [steps, rows, sequence + 1].
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
      throw ConfigError("{}: tokens are {} {}, asked for i32 [{} or more, {}, {}] (--warmup + --steps, "
                        "train.global_batch, train.sequence + 1)",
                        path, name_of(tokens.dtype), s, steps, config.train.global_batch,
                        config.train.sequence + 1);
    }
    tokens_ = tokens.as<int32_t>();
    for (int64_t i = 0; i < s.elements(); ++i) {
      if (tokens_[i] >= 0 && tokens_[i] < config.model.vocab) continue;
      throw ConfigError("{}: token {} is {}, beyond model.vocab = {}", path, i, tokens_[i], config.model.vocab);
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
        if (t < length) batch.tokens.data<int32_t>()[r * length + t] = token;
        if (t > 0) batch.targets.data<int32_t>()[r * length + t - 1] = token;
      }
      batch.documents.push_back(static_cast<int32_t>((r + 1) * length));
    }
    return batch;
  }

 private:
  int32_t token_at(int64_t index) const {
    if (tokens_ != nullptr) return tokens_[index];
    return static_cast<int32_t>(random_.below(static_cast<uint64_t>(index),
                                              static_cast<uint64_t>(config_.model.vocab)));
  }
  const Config& config_;
  RandomStream random_;
  std::unique_ptr<SafetensorsFile> file_;
  const int32_t* tokens_ = nullptr;  // in the file
};

// Weights by the specification's names; "blocks." there is "block." here.
void load_weights(Trainer& trainer, const std::string& path) {
  const SafetensorsFile file(path);
  for (Parameter& p : trainer.parameters().all()) {
    std::string name = p.spec.name;
    if (name.starts_with("block.")) name = "blocks." + name.substr(6);
    const FileTensor& stored = file.at(name);
    if (!(stored.shape == p.shape)) {
      throw ConfigError("{}: {} is {}, the config's model has {}", path, name, stored.shape, p.shape);
    }
    file.read_into(stored, p.master);
  }
  trainer.publish();
}

// High-water mark of this program's own memory (getrusage would also tell that of whoever started it).
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

void run(const BenchStepOptions& o) {
  Config config = o.config->load();
  config.optimizer.schedule = "constant";
  config.optimizer.warmup = 0;
  const TokenSource source(config, o.from, o.warmup + o.steps);
  Runtime runtime(o.threads > 0 ? o.threads : config.train.threads);
  const DType type = compute_type(config.train);
  const double peak_before = peak_gflops(runtime.exec().threads, type);
  const int64_t resident_before = peak_resident_bytes();
  Trainer trainer(config, runtime);
  if (o.from.empty()) trainer.initialize();
  else load_weights(trainer, o.from + "/weights.safetensors");

  std::vector<double> losses;
  int64_t step = 0;
  const auto one = [&] {
    losses.push_back(trainer.step(step, step * config.train.global_batch, std::cref(source)).loss);
    ++step;
  };
  for (int i = 0; i < o.warmup; ++i) one();
  const Quartiles time = measure(o.steps, one);
  const int64_t resident_peak = peak_resident_bytes();
  const double peak_after = peak_gflops(runtime.exec().threads, type);

  const double tokens = static_cast<double>(config.train.global_batch * config.train.sequence);
  const double gflops = trainer.flops_per_step() / time.median / 1e9;
  const double peak = 0.5 * (peak_before + peak_after);
  const int64_t accounted = runtime.ledger().total().peak;
  fmt::print("{} {} {} threads, {}: {:.1f} ms/step ({:.1f} to {:.1f}), {} tok/s, {:.0f} GFLOP/s, mfu {:.0f} % of "
             "our GEMM ({:.0f}/{:.0f}), memory {}, loss {:.4f} -> {:.4f}\n",
             o.config->path(), config.train.precision, runtime.exec().threads.size(),
             name_of(runtime.exec().isa), time.median * 1e3, time.q1 * 1e3, time.q3 * 1e3,
             format_count(tokens / time.median), gflops, 100 * gflops / peak, peak_before, peak_after,
             format_bytes(accounted), losses.front(), losses.back());
  const double drift = probe_drift(peak_before, peak_after);
  if (drift > kNoisy) {
    fmt::print("noisy: our GEMM ran at {:.0f} GFLOP/s before the steps and at {:.0f} after them, {:.0f} % apart; "
               "measure again on idle cores\n",
               peak_before, peak_after, 100 * drift);
  }
  if (o.json.empty()) return;
  const nlohmann::json result = {
      {"bench", "step"}, {"step_ms", milliseconds(time)}, {"tokens_per_s", tokens / time.median},
      {"mfu", gflops / peak}, {"model_gflops", gflops}, {"peak_gflops_before", peak_before},
      {"peak_gflops_after", peak_after}, {"probe_drift", drift},
      {"peak_bytes", accounted},
      {"peak_bytes_by_label", memory_by_label(runtime.ledger())},
      {"peak_resident_bytes", resident_peak}, {"resident_bytes_before", resident_before},
      {"losses", losses}, {"comm_bytes", nlohmann::json::object()},
      {"threads", runtime.exec().threads.size()}, {"isa", name_of(runtime.exec().isa)},
      {"config", resolved(config)}};
  write_json(o.json, result);
}

}  // namespace

void add_bench_step(CLI::App& bench) {
  auto o = std::make_shared<BenchStepOptions>();
  CLI::App* command =
      bench.add_subcommand("step", "Whole training steps on random tokens, at a constant learning rate");
  o->config = add_config_arguments(*command);
  command->footer("Example: weft bench step configs/tiny.toml train.precision=f32 --json step.json\n"
                  "JSON: step_ms {median, q1, q3, repetitions}, tokens_per_s, mfu (share of our own 1024-cubed "
                  "GEMM, probed before and after), probe_drift (above 0.1: noisy), peak_bytes (accounted), peak_resident_bytes, losses, "
                  "comm_bytes by axis.");
  command->add_option("--steps", o->steps, "Measured steps")->check(CLI::PositiveNumber);
  command->add_option("--warmup", o->warmup, "Unmeasured steps before them")->check(CLI::NonNegativeNumber);
  command->add_option("--threads", o->threads, "0: every core");
  command->add_option("--from", o->from,
                      "Folder with weights.safetensors and tokens.safetensors (i32 [steps, global_batch, "
                      "sequence + 1]): takes the steps that another program took from there");
  command->add_option("--json", o->json, "Writes the result to this file");
  command->final_callback([o] {
    if (!o->config->explained()) run(*o);
  });
}

}  // namespace weft
