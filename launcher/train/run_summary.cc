#include "launcher/train/run_summary.h"

#include "launcher/app/progress.h"
#include "layers/mixers/registry.h"
#include "parallel/layout/launch.h"
#include "parallel/schedule_check.h"

namespace weft {
namespace {

std::string row(std::string_view name, int64_t count, int64_t total) {
  return fmt::format("  {:<12} {:>9}  {:>3.0f} %\n", name, format_count(static_cast<double>(count)),
                     100.0 * static_cast<double>(count) / static_cast<double>(total));
}

std::string model_table(const Config& config, const ParameterCount& n) {
  std::string layers;
  for (int64_t l = 0; l < config.model.layers; ++l) layers += layer_letter_of(config.model, l);
  std::string text =
      fmt::format("model  {} layers {}, hidden {}, vocabulary {}\n", config.model.layers, layers,
                  config.model.hidden, config.model.vocab);
  for (const auto& [letter, layer] : config.model.letters) {
    text += fmt::format("  {} = {} + {}\n", letter, layer.mixer, layer.ffn);
    const std::string remark = remark_on(layer.mixer, layer.options);
    if (!remark.empty()) text += fmt::format("      note: {}\n", remark);
  }
  if (n.experts > 0) {
    text += fmt::format("  experts: {} of width {}, {} active per token\n",
                        config.model.moe.experts, config.model.moe.ffn, config.model.moe.active);
  }
  text += "parameters\n";
  text += row("embedding", n.embedding, n.total);
  text += row("mixers", n.mixers, n.total);
  if (n.experts > 0) text += row("experts", n.experts, n.total);
  if (n.shared > 0) text += row("shared", n.shared, n.total);
  if (n.routers > 0) text += row("routers", n.routers, n.total);
  if (n.dense > 0) text += row("dense ffn", n.dense, n.total);
  text += row("norms", n.norms, n.total);
  text += fmt::format("  {:<12} {:>9}  active per token {}\n", "total",
                      format_count(static_cast<double>(n.total)),
                      format_count(static_cast<double>(n.active)));
  return text;
}

std::string memory_plan(Runtime& runtime) {
  std::string text = "memory, before activations\n";
  for (const Label label :
       {Label::kParameters, Label::kMaster, Label::kGradients, Label::kMoments}) {
    const int64_t bytes = runtime.ledger().of(label).live;
    if (bytes > 0) text += fmt::format("  {:<14} {:>8}\n", name_of(label), format_bytes(bytes));
  }
  return text;
}

// Which blocks are where, and what the schedule costs.
std::string stage_table(const Config& config, int ranks) {
  const ParallelConfig& p = config.parallel;
  const int stages = p.pipe * p.virtual_stages;
  std::string text;
  for (int stage = 0; stage < stages; ++stage) {
    const IndexRange layers = layers_of_stage(p, config.model.layers, stage);
    const std::string who = stages > 1   ? fmt::format("stage {} on pipe {}", stage, stage % p.pipe)
                            : ranks == 1 ? "rank 0"
                                         : "every rank";
    text += fmt::format("  [ {}: blocks {}-{}{}{} ]\n", who, layers.begin, layers.end - 1,
                        stage == 0 ? ", embedding" : "", stage + 1 == stages ? ", head" : "");
  }
  if (p.pipe == 1) return text;
  const int data = ranks / (p.tensor * p.sequence * p.pipe);
  const auto micro_batches =
      static_cast<int>(config.train.global_batch / (data * config.train.micro_batch));
  const PipeShape shape{p.pipe, micro_batches, p.virtual_stages};
  const PipeSchedule schedule = pipe_schedule(p.schedule);
  int held = 0;
  const SimulatedPipe pipe = simulate(plans_of(schedule, shape), shape);
  for (const SimulatedRank& rank : pipe.ranks) held = std::max(held, rank.held);
  return text + fmt::format(
                    "  {}, {} micro-batches: {:.0f} % bubble = {}, "
                    "with equal stages; {} in memory at once at most\n",
                    p.schedule, micro_batches, 100 * pipe.bubble, bubble_formula(schedule), held);
}

}  // namespace

ParameterCount count_parameters(const Config& config, const std::vector<ParameterSpec>& model) {
  ParameterCount n;
  double active = 0;
  for (const ParameterSpec& spec : model) {
    if (spec.buffer) continue;
    const int64_t count = spec.global.elements();
    const std::string& name = spec.name;
    n.total += count;
    double share = 1.0;
    if (name == "embed.weight" || name == "head.weight") {
      n.embedding += count;
    } else if (spec.expert) {
      n.experts += count;
      share = static_cast<double>(config.model.moe.active) /
              static_cast<double>(config.model.moe.experts);
    } else if (name.find(".mixer.") != std::string::npos) {
      n.mixers += count;
    } else if (spec.global.dims() == 1) {
      n.norms += count;
    } else if (name.find(".moe.shared.") != std::string::npos) {
      n.shared += count;
    } else if (name.find(".moe.") != std::string::npos) {
      n.routers += count;
    } else {
      n.dense += count;
    }
    active += share * static_cast<double>(count);
  }
  n.active = static_cast<int64_t>(active);
  return n;
}

std::string start_page(const Config& config, const ModelOutline& model, Runtime& runtime,
                       const RunData& data, double flops_per_step) {
  const TrainConfig& t = config.train;
  const double tokens = static_cast<double>(t.steps) * static_cast<double>(t.global_batch) *
                        static_cast<double>(t.sequence);
  std::string text = resolved(config) + "\n";
  text += model_table(config, count_parameters(config, model.parameters));
  text += memory_plan(runtime);
  const int ranks = this_launch().size;
  text += fmt::format("layout  {} {} x {} threads, {}\n{}", ranks, ranks == 1 ? "rank" : "ranks",
                      runtime.exec().threads.size(), name_of(runtime.exec().isa),
                      stage_table(config, ranks));
  text += fmt::format("data    {} tokens once through, {} to train on ({:.2f} epochs)\n",
                      format_count(static_cast<double>(data.train_tokens)), format_count(tokens),
                      tokens / static_cast<double>(std::max<int64_t>(1, data.train_tokens)));
  text += fmt::format("step    {} sequences of {} tokens in micro-batches of {}, {:.1f} GFLOP\n",
                      t.global_batch, t.sequence, t.micro_batch, flops_per_step / 1e9);
  text += fmt::format(
      "writes  {}: metrics.jsonl, tensorboard/, run.json, "
      "log.txt, checkpoints/ every {} steps (newest {} kept)\n",
      config.run.dir, config.run.checkpoint_every, config.run.keep);
  return text;
}

}  // namespace weft
