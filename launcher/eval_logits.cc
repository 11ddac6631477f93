#include "core/safetensors.h"
#include "launcher/eval.h"
#include "launcher/loaded_model.h"

namespace weft {
namespace {

constexpr int64_t kChunk = 512;  // tokens at a time: their logits are held

struct Options {
  std::string checkpoint, tokens, out, precision = "f32";
  int threads = 0;
};

// tokens i32 [B, T], ids checked.
Tensor read_tokens(Runtime& runtime, const std::string& path, int64_t vocab) {
  const SafetensorsFile file(path);
  const FileTensor& found = file.at("tokens");
  if (found.type != FileType::kI32 || found.shape.dims() != 2) {
    throw ConfigError("{}: tokens is {} {}; must be I32 [sequences, length]", path, found.type_name,
                      found.shape);
  }
  const Tensor tokens = file.read(runtime.pool(), found, DType::kI32);
  for (int64_t i = 0; i < tokens.elements(); ++i) {
    const int32_t id = tokens.data<int32_t>()[i];
    if (id >= 0 && id < vocab) continue;
    throw ConfigError("{}: token {} of sequence {} is {}; the model's vocabulary has 0 to {}", path,
                      i % found.shape[1], i / found.shape[1], id, vocab - 1);
  }
  return tokens;
}

void write_logits(const Options& o) {
  Runtime runtime(o.threads);
  const FoundCheckpoint found = open_checkpoint(o.checkpoint);
  const LoadedModel model(runtime, found, o.precision == "f32" ? DType::kF32 : DType::kBF16);
  const int64_t vocab = model.config().model.vocab;
  const Tensor tokens = read_tokens(runtime, o.tokens, vocab);
  const int64_t sequences = tokens.shape()[0], length = tokens.shape()[1];
  SafetensorsWriter writer(o.out, {}, {{"logits", DType::kF32, {sequences, length, vocab}}});
  for (int64_t b = 0; b < sequences; ++b) {
    ModelStage::States states;
    for (int64_t at = 0; at < length; at += kChunk) {
      const int64_t count = std::min(kChunk, length - at);
      const Tensor ids = runtime.exec().empty({count}, DType::kI32);
      std::copy_n(tokens.data<int32_t>() + b * length + at, count, ids.data<int32_t>());
      std::vector<int64_t> rows(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = i;
      const Sequence sequence = make_sequence(runtime.exec(), {0, static_cast<int32_t>(count)},
                                              {static_cast<int32_t>(at)});
      writer.write_part(model.stage().decode(runtime.exec(), ids, sequence, rows, states));
    }
  }
  writer.finish();
}

}  // namespace

void add_eval_logits(CLI::App& eval) {
  auto o = std::make_shared<Options>();
  CLI::App* command = eval.add_subcommand("logits", "The model's logits after every token");
  command->footer(
      "Example: weft eval logits --checkpoint runs/tiny --tokens ids.safetensors --out "
      "logits.safetensors\n"
      "In: tokens, I32 [sequences, length]. Out: logits, F32 [sequences, length, vocabulary].");
  command
      ->add_option("--checkpoint", o->checkpoint,
                   "A checkpoint, or a run's folder (its newest one)")
      ->required();
  command->add_option("--tokens", o->tokens, "A safetensors file with the tensor tokens")
      ->required();
  command->add_option("--out", o->out, "The safetensors file to write")->required();
  command->add_option("--precision", o->precision, "f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command->add_option("--threads", o->threads, "0: every core");
  command->callback([o] { write_logits(*o); });
}

}  // namespace weft
