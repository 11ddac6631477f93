#include "launcher/app/commands.h"
#include "launcher/hf/convert.h"
#include "launcher/hf/family.h"

namespace weft {
namespace {

std::string family_list() {
  std::string out;
  for (const Family& family : families()) {
    out += fmt::format("  {:18} {}\n", family.name, family.sentence);
  }
  return out;
}

void describe(const HfFolder& from, const ImportPlan& plan) {
  const ModelConfig& m = plan.config.model;
  fmt::print("{}: {}, {} layers \"{}\", hidden {}, vocabulary {}\n", from.path(), plan.family,
             m.layers, m.pattern, m.hidden, m.vocab);
  fmt::print("{} parameters", plan.parameters);
  if (plan.active != plan.parameters) fmt::print(", {} active for a token", plan.active);
  if (from.has_tensors()) {
    fmt::print(" in {} tensors, as config.json says\n", from.tensors().size());
  } else {
    fmt::print("; no tensors in the folder, only config.json was read\n");
  }
}

void add_import(CLI::App& app) {
  struct Options {
    std::string from, to;
    bool dry = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("import", "Import a Hugging Face folder as a checkpoint");
  command->footer(
      "Example: weft convert import Qwen3-30B-A3B runs/qwen\n"
      "         weft convert import Qwen3-30B-A3B --dry-run\n"
      "Writes CKPT/checkpoints, CKPT/config.toml (weft train "
      "CKPT/config.toml continues from there) and CKPT/hf\n"
      "(tokenizer and other accompanying files). Tensors "
      "are read one at a time, for any model's size.\n"
      "Classes, by config.json's model_type:\n" +
      family_list());
  command->add_option("HF_DIR", o->from, "Folder with config.json and *.safetensors")->required();
  command->add_option("CKPT", o->to, "A new folder");
  command->add_flag("--dry-run", o->dry,
                    "Only checks: config, names and shapes of tensors; prints the parameter count");
  command->callback([o] {
    if (o->to.empty() && !o->dry)
      throw ConfigError("CKPT is missing: name a new folder, or give --dry-run");
    HfFolder from(o->from);
    describe(from, *plan_import(from));
    if (o->dry) return;
    Runtime runtime(0);
    const std::string path = import_model(runtime, from, o->to);
    fmt::print("{}\ntrain it:  weft train {}/config.toml data.train=[\"corpus\"]\n", path, o->to);
  });
}

void add_export(CLI::App& app) {
  struct Options {
    std::string from, to, dtype = "keep";
    double shard_gb = 5.0;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("export", "Export a checkpoint as a Hugging Face folder");
  command->footer(
      "Example: weft convert export runs/qwen/run out/qwen-tuned\n"
      "An imported model keeps its class, its types and its accompanying files. Weft's own models\n"
      "take the first class that represents them completely; \"weft\" covers all others, with\n"
      "Weft's names.\n" +
      family_list());
  command->add_option("CKPT", o->from, "A checkpoint, or a run's folder (its newest one)")
      ->required();
  command->add_option("HF_DIR", o->to, "A new folder")->required();
  command->add_option("--dtype", o->dtype, "keep (as imported, else as trained), f32, f16 or bf16")
      ->check(CLI::IsMember({"keep", "f32", "f16", "bf16"}));
  command->add_option("--shard-gb", o->shard_gb, "Largest file, in 10^9 bytes")
      ->check(CLI::PositiveNumber);
  command->callback([o] {
    Runtime runtime(0);
    ExportOptions options;
    if (o->dtype != "keep") {
      options.dtype = o->dtype == "f32"   ? FileDtype::kF32
                      : o->dtype == "f16" ? FileDtype::kF16
                                          : FileDtype::kBF16;
    }
    options.shard_bytes = static_cast<int64_t>(o->shard_gb * 1e9);
    const ExportReport report = export_model(runtime, o->from, o->to, options);
    fmt::print("{}: {}, {} tensors in {} file{}\n", o->to, report.family, report.tensors,
               report.files, report.files == 1 ? "" : "s");
  });
}

}  // namespace

void add_convert(CLI::App& app) {
  CLI::App* command = app.add_subcommand("convert", "Import and export Hugging Face folders");
  command->require_subcommand(1);
  add_import(*command);
  add_export(*command);
}

}  // namespace weft
