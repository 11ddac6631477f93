// Time and memory per decoded token by context length, for a stack of each kind of layer.
#include <algorithm>
#include <fstream>

#include "core/base/error.h"
#include "core/host_access.h"
#include "launcher/app/cli.h"
#include "launcher/app/commands.h"
#include "launcher/app/measure.h"
#include "launcher/app/peak_probes.h"
#include "launcher/app/progress.h"
#include "launcher/app/runtime.h"
#include "launcher/generate/generator.h"
#include "launcher/plot/plot.h"
#include "parallel/parameter_values.h"

namespace weft {
namespace {

struct BenchDecodeOptions {
  std::shared_ptr<ConfigArguments> config;
  std::vector<int64_t> contexts = {1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
  std::vector<int64_t> batches = {1, 16};
  std::string letters, fill = "repeat", json, html;
  int tokens = 15, threads = 0;
};

struct Row {
  std::string letter, mixer;
  int64_t batch, context, state_bytes;
  Quartiles seconds;
};

// A cache of keys and values, [documents, room, width] each with the filled rows of each document
// last, that holds `filled` rows, grows to `wanted` rows by repeating them: time and bytes do not
// depend on the content. Caches of windows, which drop rows, and states of constant size do not
// change.
void stretch(Exec& exec, State& cache, int64_t filled, int64_t wanted) {
  if (cache.size() < 3 || cache.back().dtype() != DType::kI32 || cache[0].shape().dims() != 3)
    return;
  const int64_t documents = cache[0].shape()[0];
  for (int64_t d = 0; d < documents; ++d) {
    if (host<int32_t>(cache.back())[d] != filled) return;
  }
  for (size_t part = 0; part + 1 < cache.size(); ++part) {
    const Tensor from = cache[part];
    const int64_t room = from.shape()[1], width = from.shape()[2];
    const Tensor to = exec.empty({documents, wanted + 256, width}, from.dtype());
    const int64_t row_bytes = from.bytes() / (documents * room);
    for (int64_t d = 0; d < documents; ++d) {
      const auto* source = reinterpret_cast<const char*>(host_bytes(from)) + d * room * row_bytes;
      auto* target = reinterpret_cast<char*>(host_bytes(to)) + d * (wanted + 256) * row_bytes;
      for (int64_t row = 0; row < wanted; ++row) {
        std::copy_n(source + row % filled * row_bytes, row_bytes, target + row * row_bytes);
      }
    }
    cache[part] = to;
  }
  const Tensor rows = exec.empty({documents}, DType::kI32);
  std::fill_n(host<int32_t>(rows), documents, static_cast<int32_t>(wanted));
  cache.back() = rows;
}

// Decodes several equal sequences in a batch.
class Decoder {
 public:
  Decoder(Exec& exec, const ModelStage& stage, int64_t batch)
      : exec_(exec), stage_(stage), batch_(batch) {}

  // Feeds `count` more tokens of every sequence; only the last ones give predictions.
  void feed(int64_t count) {
    const Tensor ids = exec_.empty({batch_ * count}, DType::kI32);
    std::vector<int32_t> documents = {0};
    std::vector<int64_t> rows;
    for (int64_t b = 0; b < batch_; ++b) {
      for (int64_t t = 0; t < count; ++t) {
        host<int32_t>(ids)[b * count + t] = static_cast<int32_t>((fed_ + t) % 101);
      }
      documents.push_back(static_cast<int32_t>((b + 1) * count));
      rows.push_back((b + 1) * count - 1);
    }
    const std::vector<int32_t> before(static_cast<size_t>(batch_), static_cast<int32_t>(fed_));
    stage_.decode(exec_, ids, make_sequence(documents, before), rows, states_);
    fed_ += count;
  }

  void reach(int64_t context, bool repeat) {
    constexpr int64_t kReal = 1024, kChunk = 512;
    const int64_t real = repeat ? std::min(context, std::max(fed_, kReal)) : context;
    while (fed_ < real) feed(std::min(kChunk, real - fed_));
    if (fed_ >= context) return;
    for (MixerState& state : states_) {
      for (const auto& [name, part] : state.parts())
        stretch(exec_, state.part(name), fed_, context);
    }
    fed_ = context;
  }

  int64_t state_bytes() const { return carried_bytes(states_); }

 private:
  Exec& exec_;
  const ModelStage& stage_;
  int64_t batch_, fed_ = 0;
  ModelStage::States states_;
};

std::string letters_of(const Config& config, const std::string& asked) {
  std::string letters;
  for (const auto& [letter, layer] : config.model.letters) letters += letter;
  if (asked.empty()) return letters;
  for (const char c : asked) {
    if (letters.find(c) != std::string::npos) continue;
    throw ConfigError("--letters {}: the config defines no layer {}; it has {}", asked, c, letters);
  }
  return asked;
}

std::vector<Row> measure_letter(const BenchDecodeOptions& o, const Config& config, char letter,
                                Runtime& runtime) {
  ParameterStore store;
  ModelConfig model = config.model;
  model.pattern = std::string(1, letter);
  const DType type = config.train.precision == "bf16" ? DType::kBF16 : DType::kF32;
  const ModelStage stage(model, Recompute::kNone, type, store);
  store.allocate(runtime.pool(), type, ParameterStore::Gradients::kNone);
  initialize(runtime.exec(), store, static_cast<uint64_t>(config.train.seed));
  std::vector<Row> rows;
  for (const int64_t batch : o.batches) {
    Decoder decoder(runtime.exec(), stage, batch);
    for (const int64_t context : o.contexts) {
      decoder.reach(context, o.fill == "repeat");
      decoder.feed(1);
      const Quartiles seconds = measure(o.tokens, [&] { decoder.feed(1); });
      rows.push_back({std::string(1, letter), model.letters.at(letter).mixer, batch, context,
                      decoder.state_bytes(), seconds});
      fmt::print(
          "{:>2} {:<16} batch {:>3}  context {:>7}  {:>9.3f} ms/token  {:>9.1f} tok/s  state {}\n",
          rows.back().letter, rows.back().mixer, batch, context, seconds.median * 1e3,
          static_cast<double>(batch) / seconds.median, format_bytes(rows.back().state_bytes));
      std::fflush(stdout);
    }
  }
  return rows;
}

std::string picture(const std::vector<Row>& rows, bool memory) {
  Chart chart{.title = memory ? "Memory of a decoding sequence" : "Time per decoded token",
              .x = "context, tokens",
              .y = memory ? "MiB carried per sequence" : "ms per step",
              .curves = {},
              .log_x = true,
              .log_y = true};
  for (const Row& row : rows) {
    const std::string name = fmt::format("{} {}, batch {}", row.letter, row.mixer, row.batch);
    if (chart.curves.empty() || chart.curves.back().name != name)
      chart.curves.push_back({name, {}});
    const double y =
        memory ? static_cast<double>(row.state_bytes) / static_cast<double>(row.batch) / (1 << 20)
               : row.seconds.median * 1e3;
    chart.curves.back().points.push_back({static_cast<double>(row.context), y});
  }
  return svg(chart);
}

void run(BenchDecodeOptions o) {
  std::sort(o.contexts.begin(), o.contexts.end());
  const Config config = o.config->load();
  Runtime runtime(o.threads > 0 ? o.threads : config.train.threads);
  const DType type = config.train.precision == "bf16" ? DType::kBF16 : DType::kF32;
  const double before = peak_gflops(runtime.exec().threads, type);
  std::vector<Row> rows;
  for (const char letter : letters_of(config, o.letters)) {
    for (Row& row : measure_letter(o, config, letter, runtime)) rows.push_back(std::move(row));
  }
  const double after = peak_gflops(runtime.exec().threads, type);
  if (probe_drift(before, after) > kNoisy) {
    fmt::print("note: the measured peak changed by {:.0f} % during the run\n",
               100 * probe_drift(before, after));
  }
  nlohmann::json cells = nlohmann::json::array();
  for (const Row& row : rows) {
    cells.push_back({{"letter", row.letter},
                     {"mixer", row.mixer},
                     {"batch", row.batch},
                     {"context", row.context},
                     {"step_ms", milliseconds(row.seconds)},
                     {"tokens_per_s", static_cast<double>(row.batch) / row.seconds.median},
                     {"state_bytes", row.state_bytes}});
  }
  if (!o.json.empty()) {
    write_json(o.json, {{"bench", "decode"},
                        {"fill", o.fill},
                        {"layers", config.model.layers},
                        {"rows", cells},
                        {"peak_gflops_before", before},
                        {"peak_gflops_after", after}});
  }
  if (o.html.empty()) return;
  std::ofstream file(o.html);
  file << page("Decoding by context length", {picture(rows, false), picture(rows, true)});
  if (!file.flush()) throw ConfigError("--html {}: cannot be written", o.html);
}

}  // namespace

void add_bench_decode(CLI::App& bench) {
  auto o = std::make_shared<BenchDecodeOptions>();
  CLI::App* command =
      bench.add_subcommand("decode", "Time and memory of decoding, by context and kind of layer");
  command->footer(
      "Example: weft bench decode configs/tiny.toml "
      "--contexts 1024,16384,131072 --html decode.html\n"
      "For each letter of the config a model of these layers alone "
      "decodes. With --fill repeat (default) contexts beyond 1024 tokens\n"
      "are made by repeating the rows of caches, with --fill real by reading them.\n"
      "JSON: fill, layers, rows [{letter, mixer, batch, context, step_ms {median, q1, q3, "
      "repetitions}, tokens_per_s, state_bytes}], peak_gflops_before, peak_gflops_after.");
  o->config = add_config_arguments(*command);
  command->add_option("--letters", o->letters,
                      "Letters of layers, e.g. LN; default: all of the config");
  command->add_option("--contexts", o->contexts, "Tokens before the measured ones, ascending")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command->add_option("--batches", o->batches, "Sequences in a batch")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command->add_option("--fill", o->fill, "repeat or real")
      ->check(CLI::IsMember({"repeat", "real"}))
      ->capture_default_str();
  command->add_option("--tokens", o->tokens, "Steps to time at each context")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--threads", o->threads, "0: train.threads of the config");
  command->add_option("--json", o->json, "Writes the result to this file");
  command->add_option("--html", o->html, "Writes a page with charts of the result");
  command->callback([o] {
    if (!o->config->explained()) run(*o);
  });
}

}  // namespace weft
