#include <optional>

#include "core/files/safetensors.h"
#include "core/host_access.h"
#include "launcher/eval/eval.h"
#include "launcher/eval/scorer.h"

namespace weft {
namespace {

struct Options {
  ModelOptions model = {.checkpoint = "", .precision = "f32"};
  std::string tokens, out;
};

// Reads tokens i32 [B, T] and checks the ids.
Tensor read_tokens(Runtime& runtime, const std::string& path, int64_t vocab) {
  const SafetensorsFile file(path);
  const FileTensor& found = file.at("tokens");
  if (found.type != FileType::kI32 || found.shape.dims() != 2) {
    throw ConfigError("{}: tokens is {} {}; must be I32 [sequences, length]", path, found.type_name,
                      found.shape);
  }
  const Tensor tokens = file.read(runtime.pool(), found, DType::kI32);
  for (int64_t i = 0; i < tokens.elements(); ++i) {
    const int32_t id = host<int32_t>(tokens)[i];
    if (id >= 0 && id < vocab) continue;
    throw ConfigError("{}: token {} of sequence {} is {}; the model's vocabulary has 0 to {}", path,
                      i % found.shape[1], i / found.shape[1], id, vocab - 1);
  }
  return tokens;
}

// All data ranks compute the same values; rank 0 writes.
void write_logits(const Options& o, ModelHere& here) {
  Exec& exec = here.runtime.exec();
  const int64_t vocab = here.model.config().model.vocab;
  const Tensor tokens = read_tokens(here.runtime, o.tokens, vocab);
  const int64_t sequences = tokens.shape()[0], length = tokens.shape()[1];
  std::optional<SafetensorsWriter> writer;
  if (here.first()) {
    writer.emplace(
        o.out, Metadata{},
        std::vector<SafetensorsWriter::Entry>{{"logits", DType::kF32, {sequences, length, vocab}}});
  }
  for (int64_t b = 0; b < sequences; ++b) {
    ModelStage::States states;
    for (int64_t at = 0; at < length; at += kTokensAtOnce) {
      const int64_t count = std::min(kTokensAtOnce, length - at);
      const Tensor ids = exec.empty({count}, DType::kI32);
      std::copy_n(host<int32_t>(tokens) + b * length + at, count, host<int32_t>(ids));
      std::vector<int64_t> rows(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = i;
      const Sequence sequence =
          make_sequence({0, static_cast<int32_t>(count)}, {static_cast<int32_t>(at)});
      const Tensor logits = here.model.decode(exec, ids, sequence, rows, states);
      if (writer) writer->write_part(logits);
    }
  }
  if (writer) writer->finish();
}

}  // namespace

void add_eval_logits(CLI::App& eval) {
  auto o = std::make_shared<Options>();
  CLI::App* command = eval.add_subcommand("logits", "Write the model's logits after every token");
  command->footer(
      "Example: weft eval logits --checkpoint runs/tiny "
      "--tokens ids.safetensors --out logits.safetensors\n"
      "In: tokens, I32 [sequences, length]. Out: logits, F32 [sequences, length, vocabulary].");
  add_model_options(*command, o->model);
  command->add_option("--tokens", o->tokens, "A safetensors file with the tensor tokens")
      ->required();
  command->add_option("--out", o->out, "The safetensors file to write")->required();
  command->callback(
      [o] { with_model(o->model, [&](ModelHere& here) { write_logits(*o, here); }); });
}

}  // namespace weft
