#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <optional>

#include <fmt/ranges.h>

#include "core/base/log.h"
#include "core/report/console.h"
#include "core/report/metrics.h"
#include "core/report/run_record.h"
#include "launcher/app/abort.h"
#include "launcher/app/cli.h"
#include "launcher/app/commands.h"
#include "launcher/app/info.h"
#include "launcher/app/measure.h"
#include "launcher/app/peak_probes.h"
#include "launcher/app/progress.h"
#include "launcher/app/ranks.h"
#include "launcher/checkpoint/checkpoint_lookup.h"
#include "launcher/data/tokenizer_files.h"
#include "launcher/train/expert_metrics.h"
#include "launcher/train/fault.h"
#include "launcher/train/memory_check.h"
#include "launcher/train/resume_check.h"
#include "launcher/train/run_data.h"
#include "launcher/train/run_summary.h"
#include "launcher/train/saves.h"
#include "launcher/train/step_trace.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/watchdog/heartbeat.h"

namespace weft {
namespace {

constexpr int64_t kBadStepsInARow = 3;  // then the run stops: skipping does not help it any more

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::map<std::string, int64_t> layout_record(const Layout& layout) {
  std::map<std::string, int64_t> record = {{"ranks", layout.world}, {"zero", layout.degrees.zero}};
  for (int a = 0; a < static_cast<int>(Axis::kCount); ++a) {
    const auto axis = static_cast<Axis>(a);
    if (layout.world > 1) record[std::string(name_of(axis))] = layout.here[axis].size;
  }
  return record;
}

// One run of `weft train`, from its first step, or the one after its newest checkpoint, to its
// last. Every rank has one; the first alone writes files (but for checkpoints, which all write) and
// speaks.
class TrainRun {
 public:
  TrainRun(const Config& config, const RankContext& ranks, const StopRequest& stop,
           const Fault& fault, int heartbeats)
      : config_(config),
        fault_(fault),
        stop_(stop),
        first_(ranks.mesh->rank() == 0),
        ranks_(ranks),
        runtime_(ranks.threads),
        data_(open_data(config, runtime_.exec(), hosts())),
        trainer_(config, runtime_, ranks.mesh, {.fault = fault}),
        trace_(config, ranks.mesh),
        log_({.file = first_ ? config.run.dir + "/log.txt" : "", .console = false}),
        saves_(config, runtime_.exec(), hosts(),
               {.warn = [this](const std::string& text) { tell(text); },
                .record = [this](const std::string& text) { log_.info("{}", text); },
                .alive = [this] { ranks_.mesh->activity().at("saving"); },
                .at =
                    [this](int64_t step, SaveMoment moment, const SaveProgress& progress) {
                      fault_.in_save(ranks_.mesh->rank(), step, moment, progress);
                    }},
               tokenizer_file(data_.tokenizer)) {
    if (first_) keeper_.emplace([this](auto text, auto& why) { log_lost_text(text, why); });
    check_memory(
        memory_need(config, runtime_.ledger(), trainer_.tensors_to_save(), ranks.mesh->here()),
        this_launch().local_size, available_memory());
    peak_ = hosts().sum(peak_gflops(runtime_.exec().threads, compute_type(config.train)) * 1e9);
    start();
    if (first_) clear_up(heartbeats);
    saves_.check_room(trainer_.tensors_to_save());
    if (!first_) return;
    metrics_.emplace(config.run.dir, step_ + 1, [this](const std::string& text) { tell(text); });
    keep_tokenizer(data_.tokenizer, config.run.dir);
    write_run_record(config.run.dir, {.run = run_,
                                      .version = version_number(),
                                      .revision = revision_text(),
                                      .config = resolved(config),
                                      .data = data_.hashes,
                                      .machine = this_machine(),
                                      .layout = layout_record(ranks.mesh->layout())});
  }

  int run() {
    const Layout& layout = ranks_.mesh->layout();
    if (first_) {
      say(start_page(config_, trainer_.model(), runtime_, data_, trainer_.flops_per_step()));
      if (layout.world > 1) {
        say(fmt::format("ranks  {}, {} threads on the first", product_text(layout.here),
                        ranks_.threads));
      }
    }
    if (!origin_.empty()) say(origin_);
    for (const std::string& change : changes_) tell(change);
    while (step_ < config_.train.steps) {
      ranks_.mesh->activity().at(step_ + 1, "");
      trace_.before(step_ + 1);
      fault_.before_step(layout.rank, step_ + 1, [this] { return stop_.requested(); });
      one_step();
      const bool last = step_ == config_.train.steps;
      const bool asked = saves_.after_step(status_);
      save(last || asked);
      if (trace_.after(step_, last || asked)) {
        log_.info("trace in {}", trace_.path());
        say(fmt::format("trace  {}   open it in ui.perfetto.dev", trace_.path()));
      }
      if (!last && asked) return stopped();
    }
    finish();
    return kExitOk;
  }

 private:
  // Where it must be there when the process ends, or in passing where one is due.
  void save(bool now) {
    ranks_.mesh->activity().at("saving");
    if (!now && !due(config_.run.checkpoint_every)) return;
    const TraceScope scope(ranks_.mesh->trace(), "save");
    if (now) return saves_.save_now(state(), trainer_.tensors_to_save());
    const auto before = std::chrono::steady_clock::now();
    saves_.save(state(), trainer_.tensors_to_save());
    save_ms_ = 1e3 * seconds_since(before);
  }

  HostGroup& hosts() { return ranks_.mesh->hosts(); }
  void say(const std::string& text) {
    if (first_) progress_.line(text);
  }
  // A run does not end because nobody can read what it says.
  void log_lost_text(std::string_view text, const std::string& first_reason) {
    if (!first_reason.empty()) {
      log_.warning("standard output cannot be written ({}); its lines are in this log from here on",
                   first_reason);
    }
    log_.info("{}", text.substr(0, text.find_last_not_of("\r\n") + 1));
  }
  void tell(const std::string& text) {  // also those who come later
    log_.warning("{}", text);
    say(text);
  }

  // A rank that reads gets on, however long that takes.
  std::function<void()> loading() const {
    return [this] { ranks_.mesh->activity().at("loading"); };
  }

  // All ranks look and load together. What is newer than the one they found is damaged, and must
  // not be taken for newer than what this run saves. A run that starts anew leaves older
  // checkpoints where they cannot be mixed up.
  std::optional<FoundCheckpoint> load_own() {
    const std::string folder = checkpoint_folder(config_.run.dir);
    if (config_.run.resume == "never") {
      const std::string aside = first_ ? set_aside_all(folder) : "";
      if (!aside.empty()) tell("kept     the checkpoints of before are now in " + aside);
      return std::nullopt;
    }
    const auto damaged = [this](const std::string& what) {
      tell("damaged  " + what + "; the one before it is tried");
    };
    const auto tensors = [this](const FoundCheckpoint& found) {
      changes_ = check_resumable(config_, state(), found);
      return trainer_.tensors_to_load(Trainer::State::kEverything);
    };
    const auto found = load_newest(hosts(), {folder, damaged, tensors, loading()});
    if (!found) changes_.clear();
    if (found && first_) set_aside_after(folder, found->manifest.step);
    if (found) saves_.resumed(found->path);
    return found;
  }

  // Removes what a job that was killed here before could not remove itself.
  void clear_up(int heartbeats) {
    const std::vector<std::string> saves = remove_unfinished(checkpoint_folder(config_.run.dir));
    if (heartbeats == 0 && saves.empty()) return;
    std::vector<std::string> what;
    if (heartbeats > 0)
      what.push_back(fmt::format("{} heartbeat{}", heartbeats, heartbeats == 1 ? "" : "s"));
    for (const std::string& name : saves) what.push_back("checkpoints/" + name);
    tell(fmt::format("removed  what a killed job left in {}: {}", config_.run.dir,
                     fmt::join(what, ", ")));
  }

  // Weights: from the newest checkpoint of this run, else from run.init, else drawn from the seed.
  void start() {
    if (const std::optional<FoundCheckpoint> found = load_own()) {
      trainer_.resume(found->manifest.updates);
      if (!found->manifest.run.empty()) run_ = found->manifest.run;
      step_ = found->manifest.step;
      samples_ = found->manifest.samples;
      bad_steps_ = found->manifest.skipped;
      origin_ = fmt::format("resumes {} after step {}", found->path, step_);
    } else if (!config_.run.init.empty()) {
      const auto load = [this](const FoundCheckpoint& from) {
        load_tensors(from, trainer_.tensors_to_load(Trainer::State::kWeights), loading());
      };
      const auto weights = use_checkpoint(hosts(), config_.run.init, load);
      origin_ = fmt::format("starts from the weights of {}", weights.path);
    } else {
      trainer_.initialize();
      return;
    }
    trainer_.publish();
    log_.info("{}", origin_);
  }

  bool due(int64_t every) const { return every > 0 && step_ % every == 0; }

  Manifest state() const {
    return {.run = run_,
            .step = step_,
            .samples = samples_,
            .updates = trainer_.updates(),
            .skipped = bad_steps_,
            .seed = config_.train.seed,
            .config = resolved(config_),
            .data = data_.contents,
            .layout = layout_record(ranks_.mesh->layout())};
  }

  void one_step() {
    const auto start = std::chrono::steady_clock::now();
    CommTally& tally = ranks_.mesh->tally();
    tally.reset();
    const StepResult result = [&] {
      TraceScope scope(ranks_.mesh->trace(), "step");
      scope.of_step(step_ + 1);
      return trainer_.step(step_, samples_, source(*data_.train),
                           [this] { return saves_.status(stop_.requested()); });
    }();
    status_ = result.status;
    const double seconds = seconds_since(start);
    seconds_ += seconds;
    ++steps_;
    ++step_;
    samples_ += config_.train.global_batch;
    StepMetrics m{.step = step_,
                  .loss = result.loss,
                  .aux_loss = result.aux_loss,
                  .grad_norm = result.grad_norm,
                  .lr = result.lr,
                  .step_ms = seconds * 1e3,
                  .tokens_per_s = static_cast<double>(result.tokens) / seconds,
                  .mfu = trainer_.flops_per_step() / seconds / peak_,
                  .tokens = samples_ * config_.train.sequence,
                  .peak_bytes = runtime_.ledger().total().peak,
                  .comm_bytes = tally.bytes_by_axis(),
                  .comm_calls = tally.calls_by_axis(),
                  .skipped = result.skipped,
                  .valid_loss = {},
                  .save_ms = std::exchange(save_ms_, std::nullopt)};
    const double waiting = tally.seconds() / seconds;
    describe_experts(result.moe, m);
    describe_pruning(result.pruning, m);
    for (const Sampler::Use& use : data_.train->use(samples_)) {
      m.sources.push_back({use.source, use.samples, use.epochs});
    }
    const bool last = step_ == config_.train.steps;
    if (!data_.valid.empty() && (last || due(config_.data.eval_every))) validate(m);
    if (first_) {
      if (shown(m)) list_expert_pairs(result.moe, m);
      metrics_->write(m);
      show(m, waiting);
    }
    if (steps_ == 1) first_loss_ = m.loss;
    last_loss_ = m.loss;
    guard(result);
  }

  static BatchSource source(Sampler& sampler) {
    return [&sampler](Pool& pool, int64_t first, int64_t rows) {
      return sampler.batch(pool, first, rows);
    };
  }

  // The loss of each validation set, and their mean by weight.
  void validate(StepMetrics& m) {
    const int64_t rows = config_.data.eval_batches * config_.train.micro_batch;
    double sum = 0, weights = 0;
    for (const RunData::ValidSet& set : data_.valid) {
      const double loss = trainer_.evaluate(source(*set.sampler), 0, rows);
      if (!set.name.empty()) m.valid_losses.emplace_back(set.name, loss);
      sum += set.weight * loss;
      weights += set.weight;
    }
    m.valid_loss = sum / weights;
  }

  // `waiting`: share of the step inside collectives.
  void show(const StepMetrics& m, double waiting) {
    const bool moe = !m.expert_load.empty();
    const double left = static_cast<double>(config_.train.steps - m.step);
    StepReport report{.step = m.step,
                      .steps = config_.train.steps,
                      .loss = m.loss,
                      .aux_loss = moe ? std::optional(m.aux_loss) : std::nullopt,
                      .grad_norm = m.grad_norm,
                      .lr = m.lr,
                      .step_ms = m.step_ms,
                      .tokens_per_s = m.tokens_per_s,
                      .mfu = m.mfu,
                      .comm = hosts().size() > 1 ? std::optional(waiting) : std::nullopt,
                      .expert_load = std::nullopt,
                      .memory = m.peak_bytes,
                      .eta_seconds = seconds_ / static_cast<double>(steps_) * left,
                      .skipped = m.skipped};
    if (moe) report.expert_load = *std::max_element(m.expert_load.begin(), m.expert_load.end());
    if (shown(m))
      progress_.line(step_line(report));
    else
      progress_.live(step_line(report));
    const auto show_valid = [&](double loss, const std::string& of) {
      progress_.line(
          fmt::format("valid  loss {:.4f}  perplexity {:.2f}{}", loss, std::exp(loss), of));
    };
    for (const auto& [name, loss] : m.valid_losses) show_valid(loss, "  " + name);
    const bool several = m.valid_losses.size() > 1;
    if (m.valid_loss && m.valid_losses.size() != 1)
      show_valid(*m.valid_loss, several ? "  mean" : "");
  }

  // Steps whose line stays on the screen; their metrics hold the load of every expert.
  bool shown(const StepMetrics& m) const {
    return due(config_.train.log_every) || m.step == config_.train.steps || steps_ == 1 ||
           m.skipped;
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
        tell(fmt::format(
            "skipped  router logits of layer {} are not finite, first at token {} of sample {}",
            moe.layer, moe.bad_token % length, first + moe.bad_token / length));
        break;
      }
    }
    if (++bad_steps_ < kBadStepsInARow) return;
    saves_.save_now(state(), trainer_.tensors_to_save());
    throw Error(
        "{} steps in a row gave a loss or gradients that are not finite, the last at step {}; "
        "lower optimizer.lr, or look at the samples named in {}/log.txt",
        bad_steps_, result.step + 1, config_.run.dir);
  }

  int stopped() {
    trainer_.finish();
    log_.info("stopped on request after step {}", step_);
    say(
        fmt::format("stopped on request after step {} of {}, saved in {}\n"
                    "         start the same command again to go on",
                    step_, config_.train.steps, saves_.newest()));
    return kExitStopped;
  }

  void finish() {
    trainer_.finish();
    if (steps_ == 0) {
      say(fmt::format("done   step {} of {} was taken before; longer: train.steps={}", step_,
                      config_.train.steps, config_.train.steps * 2));
      return;
    }
    const double tokens =
        static_cast<double>(steps_ * config_.train.global_batch * config_.train.sequence);
    say(
        fmt::format("done   {} steps, loss {:.4f} -> {:.4f}, {} tok/s\n"
                    "       {}   the model and all that a longer run needs\n"
                    "       {}/metrics.jsonl   one line per step\n"
                    "       {}/run.json        what produced it\n"
                    "       longer: the same command with train.steps={}\n"
                    "       text:   weft generate --checkpoint {} --prompt TEXT\n"
                    "       export: weft convert export {} FOLDER   as a Hugging Face folder",
                    steps_, first_loss_, last_loss_, format_count(tokens / seconds_),
                    saves_.newest(), config_.run.dir, config_.run.dir, config_.train.steps * 2,
                    config_.run.dir, config_.run.dir));
  }

  Config config_;
  Fault fault_;
  const StopRequest& stop_;
  std::string run_ = new_run_name(resolved(config_));
  bool first_;  // of all ranks
  RankContext ranks_;
  Runtime runtime_;
  RunData data_;
  Trainer trainer_;
  StepTrace trace_;
  Log log_;
  std::optional<console::Keeper> keeper_;
  double peak_ =
      0;  // FLOP/s of our own 1024-cubed GEMM in this precision, all ranks: what mfu is a share of
  std::optional<MetricsWriter> metrics_;
  Progress progress_;
  int64_t step_ = 0, samples_ = 0;  // taken and consumed by the whole run
  int64_t steps_ = 0;               // taken by this process
  double seconds_ = 0, first_loss_ = 0, last_loss_ = 0;
  std::optional<double> save_ms_;  // that the save after the last step took of the run's time
  std::string origin_;
  std::vector<std::string> changes_;  // since the checkpoint that is resumed
  Saves saves_;
  std::vector<int64_t> status_;  // sums over all ranks, of the last step
  int64_t bad_steps_ = 0;        // in a row, up to the last one
};

int train(const Config& config, const Fault& fault) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes is a line that is lost, and no more
  const StopRequest stop;         // heard from the start, answered at the border of a step
  std::unique_ptr<RunLock> lock;
  int heartbeats = 0;  // of a job before this one
  const auto take_lock = [&](const Mesh& mesh) {
    if (mesh.rank() != 0) return;
    lock = std::make_unique<RunLock>(config.run.dir);
    heartbeats = remove_heartbeats(config.run.dir + "/heartbeats");
  };
  const auto body = [&](const RankContext& ranks) {
    return TrainRun(config, ranks, stop, fault, heartbeats).run();
  };
  return on_ranks(config, body, take_lock);
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model");
  auto args = add_config_arguments(*command);
  auto fault = std::make_shared<std::string>();
  command->add_option("--fault", *fault,
                      "Inject a fault, to test recovery: RANK:STEP[:KIND] (launcher/README.md)");
  command->footer(
      "Example: weft train configs/tiny.toml train.steps=50 optimizer.lr=3e-4\n"
      "Every key of the config can be overridden as "
      "table.key=value; --explain KEY tells what a key means.");
  command->final_callback([args, fault] {
    if (args->explained()) return;
    if (const int code = train(args->load(), Fault(*fault)); code != 0)
      throw CLI::RuntimeError(code);
  });
}

}  // namespace weft
