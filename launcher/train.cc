#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

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
#include "launcher/resume.h"
#include "launcher/start_page.h"

namespace weft {
namespace {

constexpr int kBadStepsInARow = 3;  // then the run stops: skipping does not help it any more

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One run of `weft train`, from its first step, or the one after its newest checkpoint, to its last.
class TrainRun {
 public:
  TrainRun(const Config& config, RunData data)
      : config_(config),
        lock_(config.run.dir),
        data_(std::move(data)),
        runtime_(config.train.threads),
        trainer_(config, runtime_),
        log_({.file = config.run.dir + "/log.txt", .console = false}),
        peak_(peak_gflops(runtime_.exec().threads, compute_type(config.train)) * 1e9) {
    start();
    metrics_.emplace(config.run.dir, step_ + 1);
    write_run_record(config.run.dir,
                     {.version = version_number(), .revision = revision_text(),
                      .config = resolved(config), .data = data_.hashes, .machine = this_machine(),
                      .layout = {{"ranks", 1}}});
  }

  int run() {
    progress_.line(start_page(config_, trainer_.parameters(), runtime_, data_, trainer_.flops_per_step()));
    if (!origin_.empty()) progress_.line(origin_);
    const StopRequest stop;
    while (step_ < config_.train.steps) {
      one_step();
      const bool last = step_ == config_.train.steps;
      if (last || stop.requested() || due(config_.run.checkpoint_every)) save();
      if (!last && stop.requested()) return stopped();
    }
    finish();
    return kExitOk;
  }

 private:
  // Weights: from the newest checkpoint of this run, else from run.init, else drawn from the seed.
  void start() {
    const auto damaged = [this](const std::string& what) {
      log_.warning("{}", what);
      progress_.line("damaged  " + what + " (the one before it is used)");
    };
    std::optional<FoundCheckpoint> found;
    if (config_.run.resume == "auto") found = newest_checkpoint(checkpoint_folder(config_.run.dir), damaged);
    if (found) {
      check_resumable(config_, data_.hashes, *found);
      load_tensors(*found, trainer_.saved_tensors(Trainer::State::kEverything));
      trainer_.resume(found->manifest.updates);
      step_ = found->manifest.step;
      samples_ = found->manifest.samples;
      origin_ = fmt::format("resumes {} after step {}", found->path, step_);
    } else if (!config_.run.init.empty()) {
      const FoundCheckpoint weights = open_checkpoint(config_.run.init);
      load_tensors(weights, trainer_.saved_tensors(Trainer::State::kWeights));
      origin_ = fmt::format("starts from the weights of {}", weights.path);
    } else {
      trainer_.initialize();
      return;
    }
    trainer_.publish();
    log_.info("{}", origin_);
  }

  bool due(int64_t every) const { return every > 0 && step_ % every == 0; }

  void save() {
    Manifest state{.step = step_, .samples = samples_, .updates = trainer_.updates(),
                   .seed = config_.train.seed, .config = resolved(config_), .data = data_.hashes,
                   .layout = {{"ranks", 1}}, .files = {}, .pieces = {}};
    saved_ = save_checkpoint(checkpoint_folder(config_.run.dir), std::move(state),
                             trainer_.saved_tensors(Trainer::State::kEverything), config_.run.keep);
    log_.info("saved {}", saved_);
  }

  void one_step() {
    const auto start = std::chrono::steady_clock::now();
    const StepResult result = trainer_.step(step_, samples_, source(*data_.train));
    const double seconds = seconds_since(start);
    seconds_ += seconds;
    ++steps_;
    ++step_;
    samples_ += config_.train.global_batch;
    StepMetrics m{.step = step_, .loss = result.loss, .aux_loss = result.aux_loss,
                  .grad_norm = result.grad_norm, .lr = result.lr, .step_ms = seconds * 1e3,
                  .tokens_per_s = static_cast<double>(result.tokens) / seconds,
                  .mfu = trainer_.flops_per_step() / seconds / peak_,
                  .tokens = samples_ * config_.train.sequence,
                  .peak_bytes = runtime_.ledger().total().peak, .comm_bytes = {},
                  .skipped = result.skipped, .valid_loss = {}};
    describe_experts(result.moe, m);
    if (data_.valid && due(config_.data.eval_every)) m.valid_loss = validate();
    metrics_->write(m);
    show(m);
    if (steps_ == 1) first_loss_ = m.loss;
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
    const bool kept = due(config_.train.log_every) || m.step == config_.train.steps || steps_ == 1;
    if (kept) progress_.line(step_line(report));
    else progress_.live(step_line(report));
    if (m.valid_loss) progress_.line(fmt::format("valid  loss {:.4f}  perplexity {:.2f}", *m.valid_loss, std::exp(*m.valid_loss)));
  }

  // A step that was not finite changed nothing; say why, and give up when they do not stop.
  void guard(const StepResult& result) {
    if (!result.skipped) {
      bad_steps_ = 0;
      return;
    }
    const int64_t first = samples_ - config_.train.global_batch;
    log_.warning("step {}: loss {} and gradient norm {} are not finite; skipped (samples {} to {})",
                  result.step + 1, result.loss, result.grad_norm, first,
                  first + config_.train.global_batch - 1);
    for (const MoeReport& moe : result.moe) {
      if (moe.bad_token >= 0) {
        const int64_t length = config_.train.sequence;
        log_.warning("  first router logits that are not finite: layer {}, token {} of sample {}",
                     moe.layer, moe.bad_token % length, first + moe.bad_token / length);
        break;
      }
    }
    if (++bad_steps_ < kBadStepsInARow) return;
    save();
    throw Error("{} steps in a row gave a loss or gradients that are not finite, the last at step {}; "
                "lower optimizer.lr, or look at the samples named in {}/log.txt",
                bad_steps_, result.step + 1, config_.run.dir);
  }

  int stopped() {
    trainer_.finish();
    log_.info("stopped on request after step {}", step_);
    progress_.line(fmt::format("stopped on request after step {} of {}, saved in {}\n"
                               "         start the same command again to go on",
                               step_, config_.train.steps, saved_));
    return kExitStopped;
  }

  void finish() {
    trainer_.finish();
    if (steps_ == 0) {
      progress_.line(fmt::format("done   step {} of {} was taken before; longer: train.steps={}", step_,
                                 config_.train.steps, config_.train.steps * 2));
      return;
    }
    const double tokens = static_cast<double>(steps_ * config_.train.global_batch * config_.train.sequence);
    progress_.line(fmt::format(
        "done   {} steps, loss {:.4f} -> {:.4f}, {} tok/s\n"
        "       {}   the model and all that a longer run needs\n"
        "       {}/metrics.jsonl   one line per step\n"
        "       {}/run.json        what produced it\n"
        "       longer: the same command with train.steps={}",
        steps_, first_loss_, last_loss_, format_count(tokens / seconds_), saved_, config_.run.dir,
        config_.run.dir, config_.train.steps * 2));
  }

  Config config_;
  RunLock lock_;
  RunData data_;
  Runtime runtime_;
  Trainer trainer_;
  Log log_;
  double peak_;  // FLOP/s of our own 1024-cubed GEMM in this precision: what mfu is a share of
  std::optional<MetricsWriter> metrics_;
  Progress progress_;
  int64_t step_ = 0, samples_ = 0;  // taken and consumed by the whole run
  int64_t steps_ = 0;               // taken by this process
  double seconds_ = 0, first_loss_ = 0, last_loss_ = 0;
  std::string origin_, saved_;
  int bad_steps_ = 0;
};

int train(const Config& config) {
  RunData data = open_data(config);
  return TrainRun(config, std::move(data)).run();
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
