#include "core/config/run_config.h"

#include <cctype>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/nearest.h"

namespace weft {

void fields(FieldVisitor& f, LayerConfig& c) {
  f("mixer", c.mixer, "the token mixer: any name of `weft info --mixers`");
  f.choice("ffn", c.ffn, {"moe", "dense", "none"}, "the feed-forward after the mixer");
  f("residual", c.residual,
    "factors of the residual stream and of the mixer's output in their sum");
  f("ffn_residual", c.ffn_residual, "likewise for the feed-forward's output");
  f("residual_norm", c.residual_norm,
    "the residual connection carries the normed stream, not the stream itself");
  f.rest(c.options, "options of the mixer: `weft info --mixers NAME` lists them");
}

void fields(FieldVisitor& f, DenseConfig& c) {
  f("ffn", c.ffn, "width of \"dense\" feed-forwards; 0: 8/3 of hidden, rounded up to 64",
    at_least(0));
  f.choice("activation", c.activation, {"swiglu", "gelu", "relu2"},
           "between the two matrices; only swiglu has a gate");
}

void fields(FieldVisitor& f, MoeConfig& c) {
  f("experts", c.experts, "experts of a MoE layer", between(1, 65536));
  f("active", c.active, "experts each token visits", between(1, 65536));
  f("ffn", c.ffn, "width of one expert", between(1, 1 << 24));
  f("shared", c.shared,
    "shared experts, applied to every token as one SwiGLU of width shared * ffn", between(0, 1024));
  f("shared_ffn", c.shared_ffn, "width of the shared expert; 0: shared * ffn", between(0, 1 << 24));
  f.choice("router", c.router, {"softmax", "topk_softmax", "sigmoid_bias"},
           "softmax then top-k, top-k then softmax, or sigmoid with a balancing bias");
  f("renormalize", c.renormalize,
    "divide the weights of the chosen experts by their sum; sigmoid_bias: true unless set");
  f("aux_loss", c.aux_loss, "weight of the load-balance loss; it equals this at perfect balance",
    at_least(0));
  f.choice("aux_scope", c.aux_scope, {"micro_batch", "sequence", "global_batch"},
           "tokens over which the balance loss counts loads: a "
           "micro-batch, each sequence, or the whole previous step");
  f("z_loss", c.z_loss, "weight of the squared log-sum-exp of the router's logits", at_least(0));
  f("capacity", c.capacity,
    "rows an expert takes, over the mean; the others are dropped; 0: dropless", at_least(0));
  f.choice("drop_policy", c.drop_policy, {"position", "probs"},
           "with a capacity, keep the first pairs or the heaviest");
  f("shared_gate", c.shared_gate, "scale the shared experts by a sigmoid of the token");
  f("route_scale", c.route_scale, "factor on the weights of sigmoid_bias", above(0));
  f("bias_rate", c.bias_rate, "amount by which sigmoid_bias changes a bias after each step",
    at_least(0));
  f("n_group", c.n_group, "equal groups of experts for group-limited routing; 1: off",
    between(1, 64));
  f("topk_group", c.topk_group, "groups a token may choose from", between(1, 64));
  f("force_balance", c.force_balance,
    "for benchmarks: token n's choice j is expert (n * active + j) modulo experts");
  f.choice("compute", c.compute, {"grouped", "block_sparse", "loop"},
           "one ragged GEMM, block-sparse products, or a loop over experts");
  f.choice("activation", c.activation, {"swiglu", "gelu", "relu2"},
           "of experts, shared ones too; only swiglu has a gate");
}

void fields(FieldVisitor& f, ModelConfig& c) {
  f("vocab", c.vocab, "tokens of the vocabulary", between(1, 1 << 28));
  f("hidden", c.hidden, "width of the residual stream", between(1, 1 << 24));
  f("layers", c.layers, "blocks of the stack", between(1, 1 << 16));
  f("pattern", c.pattern,
    "one letter per layer, repeated to fill `layers`; letters are defined in [model.layer.X]");
  f("tie_embeddings", c.tie_embeddings, "output head and embedding share one matrix");
  f("norm_eps", c.norm_eps, "epsilon of the norms", above(0));
  f("norm_offset", c.norm_offset, "norms of blocks scale by 1 + weight instead of weight");
  f("embed_scale", c.embed_scale, "factor on the output of the embedding", above(0));
  f("logit_scale", c.logit_scale, "factor on the logits", above(0));
  f.letters("layer", c.letters, "what a letter of the pattern stands for");
  f.table("dense", c.dense, "dense feed-forwards");
  f.table("moe", c.moe, "mixtures of experts");
}

void fields(FieldVisitor& f, DataConfig& c) {
  f("train", c.train, "prefixes or files of .bin/.idx datasets; [weight, file] pairs blend");
  f("valid", c.valid,
    "validation data, written like data.train: each file has its own loss; or a table of named "
    "sets, name = files, whose files are blended");
  f("tokenizer", c.tokenizer,
    "tokenizer.json of the data; empty: the one in "
    "the folder of the first training set, else bytes");
  f("end_of_document", c.end_of_document,
    "the tokenizer's token that ends a document; empty: the usual one");
  f("pack", c.pack, "pack documents; state and attention are reset at document borders");
  f("eval_every", c.eval_every,
    "steps between validations; 0: never. Default with "
    "validation data: run.checkpoint_every, else at the end",
    at_least(0));
  f("eval_batches", c.eval_batches, "micro-batches of one validation", at_least(1));
  f("split", c.split,
    "share of the training documents, taken from the "
    "end, used for validation when data.valid is empty",
    from_below(0, 1));
}

void fields(FieldVisitor& f, TrainConfig& c) {
  f("steps", c.steps, "optimizer steps", between(1, 1LL << 40));
  f("sequence", c.sequence, "tokens of one sequence", between(1, 1 << 28));
  f("global_batch", c.global_batch, "sequences of one optimizer step, over all ranks",
    between(1, 1 << 28));
  f("micro_batch", c.micro_batch, "sequences computed at once on one rank", between(1, 1 << 28));
  f.choice("precision", c.precision, {"bf16", "f32"},
           "type of activations and weights in matrix products; master weights are always f32");
  f("seed", c.seed, "seed of the initial weights and of the data order", at_least(0));
  f.choice("recompute", c.recompute, {"none", "selective", "full"},
           "activations that backward recomputes instead of keeping them");
  f.choice("chunk_states", c.chunk_states, {"keep", "recompute"},
           "keep: save inter-chunk states and inverses for backward; recompute: backward "
           "computes them again, with less memory and more time. Results are bit-identical "
           "(mamba, s4: always recompute)");
  f("log_every", c.log_every, "steps between printed lines (metrics.jsonl has every step)",
    at_least(1));
  f("threads", c.threads, "threads per rank; 0: every core the process may use", between(0, 4096));
}

void fields(FieldVisitor& f, OptimizerConfig& c) {
  f("lr", c.lr, "peak learning rate, reached after warmup", at_least(0));
  f("min_lr", c.min_lr, "lowest learning rate of the schedule", at_least(0));
  f.choice("schedule", c.schedule, {"cosine", "wsd", "constant"},
           "shape of the learning rate after warmup");
  f("warmup", c.warmup, "steps of linear warmup from zero", at_least(0));
  f("decay", c.decay, "wsd: share of the steps, at the end, spent decaying", between(0, 1));
  f("weight_decay", c.weight_decay, "AdamW's decay; not applied to norms and biases", at_least(0));
  f("betas", c.betas, "decay rates of AdamW's first and second moments", from_below(0, 1));
  f("eps", c.eps, "epsilon of AdamW", above(0));
  f("clip", c.clip, "largest global gradient norm, over every rank; 0: off", at_least(0));
}

void fields(FieldVisitor& f, ParallelConfig& c) {
  const Range degree = between(1, 1 << 20);
  f("tensor", c.tensor,
    "ranks that share each matrix: heads, channels and the vocabulary are split over them", degree);
  f("pipe", c.pipe, "pipeline stages", degree);
  f("sequence", c.sequence, "ranks that share each sequence", degree);
  f.choice(
      "sequence_exchange", c.sequence_exchange, {"gather", "scan"},
      "how states cross sequence ranks: \"gather\" sends every span's summary to all ranks at once "
      "(LASP-2), \"scan\" sends the running state from rank to rank: 1 / (sequence - 1) of the "
      "bytes, but hops in series; results are bit-identical");
  f("expert", c.expert, "ranks that share the experts; must divide tensor x sequence x data",
    degree);
  f("expert_tensor", c.expert_tensor, "ranks that share each expert's matrices", degree);
  f("deduplicate", c.deduplicate,
    "true: send a token once to each rank that holds any of its experts; false: send it once per "
    "expert, which makes forward bit-identical for every placement of experts");
  f.choice("schedule", c.schedule, {"gpipe", "1f1b", "interleaved", "zero_bubble"},
           "order of micro-batches in the pipeline");
  f("virtual_stages", c.virtual_stages, "stages a rank holds (interleaved)", degree);
  f("stage_layers", c.stage_layers,
    "layers of each of the pipe x virtual_stages "
    "stages, as in \"3,4,4\"; empty: as even as possible");
  f("zero", c.zero, "1: optimizer states sharded over data ranks; 0: replicated", between(0, 1));
  f("overlap", c.overlap,
    "overlap gradient reduction with the last backward and weight "
    "gathering with the next forward (zero = 1), and expert, tensor "
    "and sequence exchanges with computation; results are bit-identical");
}

void fields(FieldVisitor& f, RunConfig& c) {
  f("dir", c.dir, "folder of checkpoints, logs, metrics, traces and run.json");
  f("checkpoint_every", c.checkpoint_every, "steps between checkpoints; 0: only at the end",
    at_least(0));
  f("keep", c.keep, "checkpoints kept, the newest ones", at_least(1));
  f("background_save", c.background_save,
    "write checkpoints while training continues, from a copy of weights and moments in memory");
  f.choice("device", c.device, {"auto", "cpu", "cuda"}, "device to compute on");
  f("init", c.init, "checkpoint whose weights to start from, with a fresh optimizer");
  f.choice("resume", c.resume, {"auto", "never"},
           "auto: continue from the newest checkpoint in run.dir");
  f("routing_trace", c.routing_trace,
    "\"write:FILE\" records the chosen experts of every token, \"replay:FILE\" repeats them");
  f("check_collectives", c.check_collectives,
    "debugging: ranks compare their calls before each "
    "collective; a mismatch ends the job and names both");
  f("trace", c.trace,
    "\"3-5\": record a timeline of steps 3 to 5 on all ranks (calls, layers, updates) in "
    "run.dir/trace.json, for ui.perfetto.dev or chrome://tracing; empty: none");
  f("slow_seconds", c.slow_seconds,
    "warn when a rank waits longer for others: names them and their position; 0: never",
    at_least(0));
  f("watchdog_seconds", c.watchdog_seconds,
    "abort (exit code 3) after this many seconds without progress on any awaited rank; 0: never",
    at_least(0));
}

void fields(FieldVisitor& f, Config& c) {
  f.table("model", c.model, "the network");
  f.table("data", c.data, "datasets");
  f.table("train", c.train, "steps, batches and precision");
  f.table("optimizer", c.optimizer, "AdamW and the learning rate");
  f.table("parallel", c.parallel, "data = ranks / (tensor * pipe * sequence)");
  f.table("run", c.run, "files and device");
}

std::string Config::where(const std::string& key) const {
  const auto found = places.find(key);
  return found == places.end() ? "default" : found->second.text();
}

namespace {

Config config_from_tree(ConfigNode tree, const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) apply_override(tree, text);
  Config config;
  config.places = read_fields(tree, [&](FieldVisitor& f) { fields(f, config); });
  MoeConfig& moe = config.model.moe;
  if (moe.router == "sigmoid_bias" && !config.places.contains("model.moe.renormalize")) {
    moe.renormalize = true;
  }
  DataConfig& data = config.data;
  if ((!data.valid.empty() || data.split > 0) && !config.places.contains("data.eval_every")) {
    data.eval_every =
        config.run.checkpoint_every > 0 ? config.run.checkpoint_every : config.train.steps;
  }
  validate(config);
  return config;
}

std::string explain_one(const FieldInfo& info) {
  std::string out = fmt::format("{}\n  {}\n", info.name, info.doc);
  if (info.type == "options") return out;
  out += fmt::format("  type: {}{}{}\n", info.type, info.rule.empty() ? "" : ", ", info.rule);
  return out + fmt::format("  default: {}\n", info.default_value);
}

// model.layer.L.mixer is documented as model.layer.X.mixer.
std::string with_any_letter(const std::string& key) {
  constexpr std::string_view kPrefix = "model.layer.";
  if (!key.starts_with(kPrefix) || key.size() <= kPrefix.size()) return key;
  const size_t dot = key.find('.', kPrefix.size());
  return fmt::format("{}X{}", kPrefix, dot == std::string::npos ? "" : key.substr(dot));
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
  return config_from_tree(parse_toml_file(path), overrides);
}

Config config_from_text(std::string_view toml, const std::string& file,
                        const std::vector<std::string>& overrides) {
  return config_from_tree(parse_toml(toml, file), overrides);
}

std::string resolved(const Config& config) {
  Config copy = config;  // the visitor's references are not const
  return print_toml(write_fields([&](FieldVisitor& f) { fields(f, copy); }));
}

std::string explain(const std::string& asked) {
  const std::string key = with_any_letter(asked);
  const std::vector<FieldInfo> all = describe<Config>();
  std::string out;
  std::vector<std::string> names;
  for (const FieldInfo& info : all) {
    names.push_back(info.name);
    if (key != "all" && info.name != key && !info.name.starts_with(key + ".")) continue;
    if (!out.empty()) out += "\n";
    out += explain_one(info);
  }
  if (!out.empty()) return out;
  if (key.starts_with("model.layer.X.")) return explain("model.layer.X");  // a mixer's own option
  for (const std::string& name : names) {
    if (name.ends_with("." + key)) {
      throw ConfigError("there is no key '{}'; nearest: '{}'", asked, name);
    }
  }
  throw ConfigError("there is no key '{}'; {}", asked, nearest_or_all(key, names));
}

std::string layer_letter_of(const ModelConfig& model, int64_t layer) {
  WEFT_CHECK(!model.pattern.empty() && layer >= 0, "layer {} of pattern \"{}\"", layer,
             model.pattern);
  return std::string(1, model.pattern[static_cast<size_t>(layer) % model.pattern.size()]);
}

const LayerConfig& layer_config_of(const ModelConfig& model, int64_t layer) {
  const std::string letter = layer_letter_of(model, layer);
  const auto found = model.letters.find(letter[0]);
  WEFT_CHECK(found != model.letters.end(), "letter '{}' has no table", letter);
  return found->second;
}

std::vector<int64_t> stage_sizes(const ParallelConfig& parallel) {
  const std::string& text = parallel.stage_layers;
  std::vector<int64_t> sizes;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    int64_t size = 0;
    while (at < end && *at == ' ') ++at;
    const auto [after, failure] = std::from_chars(at, end, size);
    if (failure != std::errc{} || size < 1) return {};
    sizes.push_back(size);
    at = after;
    while (at < end && *at == ' ') ++at;
    if (at < end && (*at++ != ',' || at == end)) return {};
  }
  return sizes;
}

int64_t dense_width(const ModelConfig& model) {
  if (model.dense.ffn > 0) return model.dense.ffn;
  return ((8 * model.hidden + 2) / 3 + 63) / 64 * 64;
}

}  // namespace weft
