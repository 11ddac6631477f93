#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/config/config.h"

// All keys of a config file. Each struct validates itself; rules between structs are in
// validate(const Config&). Defaults are those of the documentation: weft train --explain all.
namespace weft {

// One letter of the pattern.
struct LayerConfig {
  std::string mixer = "softmax";  // a name of `weft info --mixers`
  std::string ffn = "moe";        // "moe", "dense", "none"
  // x <- residual[0] x + residual[1] mixer(norm(x)), likewise around the feed-forward
  std::array<double, 2> residual = {1.0, 1.0}, ffn_residual = {1.0, 1.0};
  bool residual_norm = false;
  OptionTable options;  // all other keys: read by the mixer, see read_options
};

struct DenseConfig {
  int64_t ffn = 0;  // 0: dense_width()
  std::string activation = "swiglu";
};

struct MoeConfig {
  int64_t experts = 64;
  int64_t active = 8;
  int64_t ffn = 896;
  int64_t shared = 0;      // shared experts: one SwiGLU of width shared * ffn for every token
  int64_t shared_ffn = 0;  // its width if not a multiple of ffn; 0: shared * ffn
  std::string router = "softmax";
  bool renormalize = false;  // when read from a file, the default with sigmoid_bias is true
  double aux_loss = 0.01;
  std::string aux_scope = "micro_batch";
  double z_loss = 0.0;
  double capacity = 0.0;  // 0: dropless
  std::string drop_policy = "position";
  bool shared_gate = false;
  double route_scale = 1.0;
  double bias_rate = 1e-3;
  int64_t n_group = 1;
  int64_t topk_group = 1;
  bool force_balance = false;
  std::string compute = "grouped";
  std::string activation = "swiglu";  // of experts and shared experts
};

struct ModelConfig {
  int64_t vocab = 32000;
  int64_t hidden = 1024;
  int64_t layers = 12;
  std::string pattern = "LLLN";
  bool tie_embeddings = false;
  double norm_eps = 1e-5;
  bool norm_offset = false;
  double embed_scale = 1.0, logit_scale = 1.0;
  std::map<char, LayerConfig> letters;  // [model.layer.X]
  DenseConfig dense;
  MoeConfig moe;
};

struct DataConfig {
  std::vector<DataSource> train;
  std::vector<DataSource> valid;
  std::string tokenizer;
  std::string end_of_document;
  bool pack = true;
  int64_t eval_every = 0;
  int64_t eval_batches = 10;
  double split = 0.0;
};

struct TrainConfig {
  int64_t steps = 1000;
  int64_t sequence = 2048;
  int64_t global_batch = 32;
  int64_t micro_batch = 1;
  std::string precision = "bf16";
  int64_t seed = 1;
  std::string recompute = "none";
  std::string chunk_states = "keep";
  int64_t log_every = 1;
  int threads = 0;  // 0: every core this process may use
};

struct OptimizerConfig {
  double lr = 1e-4;
  double min_lr = 1e-5;
  std::string schedule = "cosine";
  int64_t warmup = 100;
  double decay = 0.2;
  double weight_decay = 0.1;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double clip = 1.0;  // 0 turns clipping off
};

struct ParallelConfig {
  int tensor = 1;
  int pipe = 1;
  int sequence = 1;
  std::string sequence_exchange = "gather";
  int expert = 1;
  int expert_tensor = 1;
  bool deduplicate = true;
  std::string schedule = "1f1b";
  int virtual_stages = 1;
  std::string stage_layers = {};  // "3,4,4": layers of each stage; empty: as even as possible
  int zero = 1;
  bool overlap = true;
};

struct RunConfig {
  std::string dir = "runs/run";
  int64_t checkpoint_every = 500;
  int64_t keep = 3;
  bool background_save = true;
  std::string device = "auto";
  std::string init;
  std::string resume = "auto";
  std::string routing_trace;  // "", "write:FILE" or "replay:FILE"
  bool check_collectives = false;
  std::string trace;                                 // "", "3" or "3-5"
  double slow_seconds = 10, watchdog_seconds = 600;  // 0: never
};

struct Config {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  RunConfig run;

  // Origin of each key that was set, by full name ("train.steps"); others have defaults.
  std::map<std::string, Place> places;
  std::string where(const std::string& key) const;  // "tiny.toml:12:1", "command line", "default"
};

void fields(FieldVisitor& f, LayerConfig& c);
void fields(FieldVisitor& f, DenseConfig& c);
void fields(FieldVisitor& f, MoeConfig& c);
void fields(FieldVisitor& f, ModelConfig& c);
void fields(FieldVisitor& f, DataConfig& c);
void fields(FieldVisitor& f, TrainConfig& c);
void fields(FieldVisitor& f, OptimizerConfig& c);
void fields(FieldVisitor& f, ParallelConfig& c);
void fields(FieldVisitor& f, RunConfig& c);
void fields(FieldVisitor& f, Config& c);

// Reads, applies the overrides ("train.steps=10") in order, validates. Throws ConfigError.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {});
Config config_from_text(std::string_view toml, const std::string& file,
                        const std::vector<std::string>& overrides = {});

// Rules across keys. Called by load_config; configs made in code need an explicit call.
void validate(const Config& config);

std::string resolved(const Config& config);  // the whole config as TOML; reads back the same

// Type, default, rule and meaning of "train.steps", of every key of "train", or of "all".
std::string explain(const std::string& key);

// "LLLN" -> "L" for layer 0, "N" for layer 3, "L" for layer 4.
std::string layer_letter_of(const ModelConfig& model, int64_t layer);
const LayerConfig& layer_config_of(const ModelConfig& model, int64_t layer);

// parallel.stage_layers as numbers, one per stage, in the order of layers; empty if the text is
// empty or not a list of positive numbers.
std::vector<int64_t> stage_sizes(const ParallelConfig& parallel);

// Width of "dense" feed-forwards: model.dense.ffn, by default 8/3 of hidden rounded up to 64.
int64_t dense_width(const ModelConfig& model);

}  // namespace weft
