#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "core/log.h"
#include "core/metrics.h"
#include "core/run_record.h"
#include "launcher/abort.h"
#include "launcher/bench_support.h"
#include "launcher/cli.h"
#include "launcher/commands.h"
#include "launcher/expert_metrics.h"
#include "launcher/info.h"
#include "launcher/progress.h"
#include "launcher/start_page.h"

namespace weft {
namespace {

constexpr int kBadStepsInARow = 3;  // then the run stops: skipping does not help it any more

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One run of `weft train`, from its first step to its last.
class TrainRun {
 public:
  TrainRun(const Config& config, RunData data)
      : config_(config),
        data_(std::move(data)),
        runtime_(config.train.threads),
        trainer_(config, runtime_),
        peak_(peak_gflops(runtime_.exec(), compute_type(config.train)) * 1e9) {
    std::filesystem::create_directories(config.run.dir);
    log_.emplace(LogOptions{.file = config.run.dir + "/log.txt", .console = false});
    metrics_.emplace(config.run.dir);
    RunRecord record{.version = version_number(), .revision = revision_text(),
                     .config = resolved(config), .data = data_.hashes, .machine = this_machine(),
                     .layout = {{"ranks", 1}}};
    write_run_record(config.run.dir, record);
    trainer_.initialize();
  }

  int run() {
    progress_.line(start_page(config_, trainer_.parameters(), runtime_, data_, trainer_.flops_per_step()));
    const StopRequest stop;
    for (int64_t step = 0; step < config_.train.steps; ++step) {
      one_step(step);
      if (stop.requested() && step + 1 < config_.train.steps) return stopped(step + 1);
    }
    finish();
    return kExitOk;
  }

 private:
  void one_step(int64_t step) {
    const auto start = std::chrono::steady_clock::now();
    const StepResult result = trainer_.step(step, source(*data_.train));
    const double seconds = seconds_since(start);
    seconds_ += seconds;
    ++steps_;
    StepMetrics m{.step = step + 1, .loss = result.loss, .aux_loss = result.aux_loss,
                  .grad_norm = result.grad_norm, .lr = result.lr, .step_ms = seconds * 1e3,
                  .tokens_per_s = static_cast<double>(result.tokens) / seconds,
                  .mfu = trainer_.flops_per_step() / seconds / peak_,
                  .tokens = (step + 1) * result.tokens,
                  .peak_bytes = runtime_.ledger().total().peak, .comm_bytes = {},
                  .skipped = result.skipped, .valid_loss = {}};
    describe_experts(result.moe, m);
    if (data_.valid && (step + 1) % config_.data.eval_every == 0) m.valid_loss = validate();
    metrics_->write(m);
    show(m);
    if (step == 0) first_loss_ = m.loss;
    last_loss_ = m.loss;
    guard(result);
  }

  static BatchSource source(Sampler& sampler) {
    return [&sampler](Pool& pool, int64_t first, int64_t rows) {
      return sampler.batch(pool, first, rows);
    };
  }

  double validate() {
    const int64_t rows = config_.data.eval_batches * config_.train.micro_batch;
    return trainer_.evaluate(source(*data_.valid), 0, rows);
  }

  void show(const StepMetrics& m) {
    const bool moe = !m.expert_load.empty();
    const double left = static_cast<double>(config_.train.steps - m.step);
    StepReport report{.step = m.step, .steps = config_.train.steps, .loss = m.loss,
                      .aux_loss = moe ? std::optional(m.aux_loss) : std::nullopt,
                      .grad_norm = m.grad_norm, .lr = m.lr, .step_ms = m.step_ms,
                      .tokens_per_s = m.tokens_per_s, .mfu = m.mfu, .comm = std::nullopt,
                      .expert_load = std::nullopt, .memory = m.peak_bytes,
                      .eta_seconds = seconds_ / static_cast<double>(steps_) * left,
                      .skipped = m.skipped};
    if (moe) report.expert_load = *std::max_element(m.expert_load.begin(), m.expert_load.end());
    const bool due = m.step % config_.train.log_every == 0 || m.step == config_.train.steps || m.step == 1;
    if (due) progress_.line(step_line(report));
    else progress_.live(step_line(report));
    if (m.valid_loss) progress_.line(fmt::format("valid  loss {:.4f}  perplexity {:.2f}", *m.valid_loss, std::exp(*m.valid_loss)));
  }

  // A step that was not finite changed nothing; say why, and give up when they do not stop.
  void guard(const StepResult& result) {
    if (!result.skipped) {
      bad_steps_ = 0;
      return;
    }
    const int64_t first = result.step * config_.train.global_batch;
    log_->warning("step {}: loss {} and gradient norm {} are not finite; skipped (samples {} to {})",
                  result.step + 1, result.loss, result.grad_norm, first,
                  first + config_.train.global_batch - 1);
    for (const MoeReport& moe : result.moe) {
      if (moe.bad_token >= 0) {
        const int64_t length = config_.train.sequence;
        log_->warning("  first router logits that are not finite: layer {}, token {} of sample {}",
                      moe.layer, moe.bad_token % length, first + moe.bad_token / length);
        break;
      }
    }
    if (++bad_steps_ < kBadStepsInARow) return;
    throw Error("{} steps in a row gave a loss or gradients that are not finite, the last at step {}; "
                "lower optimizer.lr, or look at the samples named in {}/log.txt",
                bad_steps_, result.step + 1, config_.run.dir);
  }

  int stopped(int64_t steps) {
    trainer_.finish();
    log_->info("stopped on request after step {}", steps);
    progress_.line(fmt::format(
        "stopped on request after step {} of {}. metrics: {}/metrics.jsonl\n"
        "Weights are not saved by this version; weft train starts again from step 1.",
        steps, config_.train.steps, config_.run.dir));
    return kExitStopped;
  }

  void finish() {
    trainer_.finish();
    const double tokens = static_cast<double>(steps_ * config_.train.global_batch * config_.train.sequence);
    progress_.line(fmt::format(
        "done   {} steps, loss {:.4f} -> {:.4f}, {} tok/s\n"
        "       {}/metrics.jsonl   one line per step\n"
        "       {}/run.json        what produced it\n"
        "       longer: weft train ... train.steps={}",
        steps_, first_loss_, last_loss_, format_count(tokens / seconds_), config_.run.dir,
        config_.run.dir, config_.train.steps * 2));
  }

  Config config_;
  RunData data_;
  Runtime runtime_;
  Trainer trainer_;
  double peak_;  // FLOP/s of our own 1024-cubed GEMM in this precision: what mfu is a share of
  std::optional<Log> log_;
  std::optional<MetricsWriter> metrics_;
  Progress progress_;
  double seconds_ = 0, first_loss_ = 0, last_loss_ = 0;
  int64_t steps_ = 0;
  int bad_steps_ = 0;
};

int train(const Config& config) {
  RunData data = open_data(config);
  TrainRun run(config, std::move(data));
  return run.run();
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model");
  auto args = add_config_arguments(*command);
  command->footer("Example: weft train configs/tiny.toml train.steps=50 optimizer.lr=3e-4\n"
                  "Every key of the config can be overridden as table.key=value; --explain KEY tells "
                  "what a key means.");
  command->final_callback([args] {
    if (args->explained()) return;
    if (const int code = train(args->load()); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace weft
