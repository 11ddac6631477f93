#include "launcher/checkpoint/upcycle.h"

#include <filesystem>
#include <fstream>

#include "core/host_access.h"
#include "launcher/checkpoint/loaded_model.h"
#include "parallel/checkpoint/boxes.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/parameter_values.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::string dense_letters(const ModelConfig& model) {
  std::string letters;
  for (const auto& [letter, layer] : model.letters) {
    if (layer.ffn == "dense" && model.pattern.find(letter) != std::string::npos) letters += letter;
  }
  return letters;
}

void check(const ModelConfig& dense, const Upcycling& how) {
  const int64_t width = dense_width(dense);
  if (how.slices < 1 || width % how.slices != 0) {
    int64_t nearest = 1;
    for (int64_t n = 1; n <= width; ++n) {
      if (width % n == 0 && std::abs(n - how.slices) < std::abs(nearest - how.slices)) nearest = n;
    }
    throw ConfigError("--slices {} does not divide the dense width {}; the nearest that does is {}",
                      how.slices, width, nearest);
  }
  const auto round = [&](int64_t n) {
    return std::max<int64_t>(1, (n + how.slices / 2) / how.slices) * how.slices;
  };
  if (how.experts % how.slices != 0 || how.experts < 1) {
    throw ConfigError(
        "--experts {} is not a multiple of --slices {}: every "
        "copy has all slices; the nearest that is one is {}",
        how.experts, how.slices, round(how.experts));
  }
  if (how.active % how.slices != 0 || how.active < 1) {
    throw ConfigError(
        "--active {} is not a multiple of --slices {}: a token "
        "visits all slices of a copy; the nearest that is one is {}",
        how.active, how.slices, round(how.active));
  }
  if (how.active > how.experts) {
    throw ConfigError("--active {} is more than --experts {}; at most {} can be active", how.active,
                      how.experts, how.experts);
  }
  for (const char letter : how.layers) {
    const auto found = dense.letters.find(letter);
    if (found == dense.letters.end() || found->second.ffn != "dense") {
      throw ConfigError(
          "--layers {}: letter {} of the pattern has no dense feed-forward; those that have: {}",
          how.layers, letter, dense_letters(dense));
    }
  }
  if (dense_letters(dense).empty()) {
    throw ConfigError(
        "no layer of this model has a dense feed-forward (ffn = \"dense\"): nothing to upcycle");
  }
}

Config sparse_config(Config config, const Upcycling& how) {
  const std::string letters = how.layers.empty() ? dense_letters(config.model) : how.layers;
  for (const auto& [letter, layer] : config.model.letters) {
    if (layer.ffn == "moe" && config.model.pattern.find(letter) != std::string::npos) {
      throw ConfigError(
          "letter {} of the pattern already has experts; a model has one kind of them", letter);
    }
  }
  MoeConfig& moe = config.model.moe;
  moe.experts = how.experts;
  moe.active = how.active;
  moe.ffn = dense_width(config.model) / how.slices;
  moe.router = how.router;
  moe.renormalize = how.router != "topk_softmax";
  moe.activation = config.model.dense.activation;
  moe.shared = 0;
  for (const char letter : letters) config.model.letters.at(letter).ffn = "moe";
  return config;
}

// Slice `slice` of one layer's feed-forward becomes expert `expert`. Gate and up are stacked: their
// rows of the slice are two runs.
struct LayerWeights {
  Tensor in, down;         // dense: [parts * W, hidden], [hidden, W]
  Parameter &ins, &downs;  // experts: [n, parts * w, hidden], [n, hidden, w]
  int64_t slices;
  float scale;  // of the down projection

  void copy(int64_t expert, int64_t slice) const {
    const int64_t w = downs.shape[2], hidden = downs.shape[1], wide = w * slices;
    const int64_t parts = ins.shape[1] / w;
    for (int64_t part = 0; part < parts; ++part) {
      std::copy_n(host<float>(in) + (part * wide + slice * w) * hidden, w * hidden,
                  host<float>(ins.master) + (expert * parts + part) * w * hidden);
    }
    for (int64_t row = 0; row < hidden; ++row) {
      const float* from = host<float>(down) + row * wide + slice * w;
      float* to = host<float>(downs.master) + (expert * hidden + row) * w;
      for (int64_t c = 0; c < w; ++c) to[c] = scale * from[c];
    }
  }
};

// A tensor of the dense checkpoint.
Tensor read_tensor(Runtime& runtime, CheckpointReader& from, const std::string& name) {
  const Shape global = from.shape_of("parameters/" + name);
  const Tensor t = runtime.exec().empty(global);
  from.read({"parameters/" + name, global, {whole_of(global)}, t});
  return t;
}

void make_experts(Runtime& runtime, CheckpointReader& dense, const Upcycling& how,
                  const Config& config, int64_t layer, ParameterStore& store) {
  const bool gated = config.model.moe.activation == "swiglu";
  const std::string from = fmt::format("block.{}.mlp.", layer),
                    to = fmt::format("block.{}.moe.", layer);
  const std::string in = gated ? "w_gate_up" : "w_up";
  const LayerWeights weights{
      read_tensor(runtime, dense, from + in),
      read_tensor(runtime, dense, from + "w_down"),
      *store.find(to + "experts." + in),
      *store.find(to + "experts.w_down"),
      how.slices,
      static_cast<float>(static_cast<double>(how.slices) / config.model.moe.route_scale)};
  Parameter& router = *store.find(to + "router.weight");
  const int64_t hidden = router.shape[1];
  for (int64_t e = 0; e < how.experts; ++e) {
    weights.copy(e, e % how.slices);
    // The slices of a copy follow each other and share its router.
    std::copy_n(host<float>(router.master) + e / how.slices * how.slices * hidden, hidden,
                host<float>(router.master) + e * hidden);
  }
}

}  // namespace

std::string upcycle(Runtime& runtime, const FoundCheckpoint& dense, const Upcycling& how,
                    const std::string& folder) {
  const Config before = config_from_text(dense.manifest.config, dense.path);
  check(before.model, how);
  Config config = sparse_config(before, how);
  if (fs::exists(folder) && !fs::is_empty(folder)) {
    throw ConfigError("{}: is not empty; name a new folder", folder);
  }
  ParameterStore store;
  const ModelStage stage(config.model, Recompute::kNone, DType::kF32, store);
  store.allocate(runtime.pool(), DType::kF32, ParameterStore::Gradients::kNone);
  initialize(runtime.exec(), store, static_cast<uint64_t>(config.train.seed));

  std::vector<SavedTensor> kept;
  for (SavedTensor& t : saved_weights(store)) {
    if (t.name.find(".moe.") == std::string::npos) kept.push_back(std::move(t));
  }
  CheckpointReader reader(dense);
  for (const SavedTensor& t : kept) reader.expect(t.name, t.global);
  reader.read(kept);
  for (int64_t layer = 0; layer < config.model.layers; ++layer) {
    if (layer_config_of(config.model, layer).ffn == "moe") {
      make_experts(runtime, reader, how, config, layer, store);
    }
  }
  Manifest manifest;
  manifest.seed = dense.manifest.seed;
  manifest.config = resolved(config);
  const std::string path = save_checkpoint(checkpoint_folder(folder), manifest,
                                           saved_weights(store), 0, others_of(dense));
  config.run.init = folder;
  config.run.dir = folder + "/run";
  std::ofstream file(folder + "/config.toml");
  file << resolved(config);
  if (!file.flush()) throw Error("{}/config.toml: cannot be written", folder);
  return path;
}

}  // namespace weft
