#include "launcher/generate/model_ranks.h"

#include "core/base/error.h"
#include "launcher/app/ranks.h"

namespace weft {
namespace {

constexpr const char* kWhatWorks =
    "parallel.tensor, parallel.expert and parallel.expert_tensor "
    "split the model, other ranks share the texts";

DType precision_of(const ModelOptions& options, const Config& config) {
  const std::string& name = options.precision.empty() ? config.train.precision : options.precision;
  return name == "f32" ? DType::kF32 : DType::kBF16;
}

void refuse_axis(const Config& config, const char* key, int degree, const char* why) {
  if (degree == 1) return;
  throw ConfigError("{}: {} = {}: {}; {}", config.where(key), key, degree, why, kWhatWorks);
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--checkpoint", options.checkpoint,
                  "A checkpoint, or a run's folder (its newest one)")
      ->required();
  command
      .add_option("--precision", options.precision,
                  fmt::format("f32 or bf16; default: {}",
                              options.precision.empty() ? "as trained" : options.precision))
      ->check(CLI::IsMember({"f32", "bf16"}));
  command
      .add_option("--threads", options.threads,
                  "Threads per rank; 0: this rank's share of the cores")
      ->check(CLI::NonNegativeNumber);
  command.add_option("key=value", options.layout,
                     "Under mpirun: parallel.tensor=N, parallel.expert=N, parallel.expert_tensor=N "
                     "split the model; other ranks share the texts");
}

ModelHere::ModelHere(const std::string& checkpoint, DType precision, int threads,
                     std::shared_ptr<const Mesh> ranks, Travel travel)
    : mesh(std::move(ranks)),
      runtime(threads),
      found(use_checkpoint(mesh->hosts(), checkpoint,
                           [&](const FoundCheckpoint& from) {
                             loaded.reset();  // one in memory at a time
                             loaded = std::make_unique<LoadedModel>(runtime, from, precision, mesh,
                                                                    travel);
                             others_of(from);  // throws if they are incomplete
                           })),
      model(*loaded) {}

Config under_layout(const FoundCheckpoint& found, const std::vector<std::string>& layout) {
  for (const std::string& text : layout) {
    if (text.starts_with("parallel.") && text.find('=') != std::string::npos) continue;
    throw ConfigError("'{}': only the layout can be chosen here, for example parallel.tensor=2; {}",
                      text, kWhatWorks);
  }
  Config config = config_from_text(found.manifest.config, found.path);
  config.parallel = {};
  config = config_from_text(resolved(config), found.path, layout);
  const ParallelConfig& p = config.parallel;
  refuse_axis(config, "parallel.pipe", p.pipe,
              "decoding runs all layers of a token before the next token");
  refuse_axis(config, "parallel.sequence", p.sequence,
              "decoding processes one token after the other");
  return config;
}

void with_model(const ModelOptions& options, const std::function<void(ModelHere&)>& body) {
  const FoundCheckpoint found = open_checkpoint(options.checkpoint);
  Config config = under_layout(found, options.layout);
  const DType precision = precision_of(options, config);
  // Neutral values for settings of training: batches that divide over the data ranks, threads, and
  // a watchdog that would write into the run's folder.
  config.train.micro_batch = 1;
  config.train.global_batch = this_launch().size;
  config.train.threads = options.threads;
  config.run.slow_seconds = config.run.watchdog_seconds = 0;
  const Travel travel = config.parallel.deduplicate ? Travel::kOncePerRank : Travel::kOncePerExpert;
  on_ranks(config, [&](const RankContext& ranks) {
    ModelHere here(options.checkpoint, precision, ranks.threads, ranks.mesh, travel);
    if (here.first()) say_taken(here.found);
    body(here);
    return kExitOk;
  });
}

}  // namespace weft
