#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "launcher/app/abort.h"
#include "launcher/app/commands.h"
#include "launcher/checkpoint/reshard.h"
#include "launcher/checkpoint/upcycle.h"

namespace weft {
namespace {

using Json = nlohmann::json;

struct TensorSummary {
  Shape global;
  int64_t pieces = 0;
};

struct ManifestSummary {
  std::map<std::string, TensorSummary> tensors;
  int64_t parameters = 0, bytes = 0;
};

ManifestSummary summary_of(const Manifest& m) {
  ManifestSummary s;
  for (const Manifest::Piece& piece : m.pieces) {
    TensorSummary& t = s.tensors[piece.tensor];
    t.global = piece.global;
    ++t.pieces;
    if (piece.tensor.starts_with("parameters/")) s.parameters += piece.slice.extent.elements();
  }
  for (const Manifest::File& file : m.files) s.bytes += file.bytes;
  return s;
}

void inspect(const FoundCheckpoint& found) {
  const Manifest& m = found.manifest;
  const ManifestSummary s = summary_of(m);
  fmt::print(
      "{}\n"
      "step {}{}, {} sequences, {} updates, seed {}\n"
      "{} parameters, {} tensors in {} file(s) of {} bytes\n",
      found.path, m.step, m.run.empty() ? "" : " of run " + m.run, m.samples, m.updates, m.seed,
      s.parameters, s.tensors.size(), m.files.size(), s.bytes);
  for (const auto& [name, size] : m.layout) fmt::print("  {} = {}\n", name, size);
  for (const auto& [name, t] : s.tensors) {
    fmt::print("{:60} {} {}\n", name, to_string(t.global),
               t.pieces == 1 ? "" : fmt::format("in {} pieces", t.pieces));
  }
  fmt::print("\n{}", m.config);
}

Json inspect_json(const FoundCheckpoint& found) {
  const Manifest& m = found.manifest;
  const ManifestSummary s = summary_of(m);
  Json files = Json::array(), tensors = Json::array();
  for (const Manifest::File& f : m.files) {
    files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"hash", hash_of(f)}});
  }
  for (const auto& [name, t] : s.tensors) {
    tensors.push_back({{"name", name},
                       {"shape", std::vector<int64_t>(t.global.begin(), t.global.end())},
                       {"slices", t.pieces}});
  }
  return {{"path", found.path},
          {"run", m.run},
          {"step", m.step},
          {"samples", m.samples},
          {"updates", m.updates},
          {"seed", m.seed},
          {"parameters", s.parameters},
          {"bytes", s.bytes},
          {"layout", m.layout},
          {"data", m.data},
          {"files", files},
          {"tensors", tensors},
          {"config", m.config}};
}

void add_inspect(CLI::App& app) {
  struct Options {
    std::string path;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("inspect", "What a checkpoint holds: tensors, shapes, config");
  command->footer(
      "Example: weft checkpoint inspect runs/tiny\n"
      "With h5py: h5py.File('runs/tiny/checkpoints/step-000000500/index.h5') "
      "has every tensor in its whole shape.");
  command->add_option("DIR", o->path, "A checkpoint, or a run's folder (its newest one)")
      ->required();
  command->add_flag("--json", o->json, "Prints JSON");
  command->callback([o] {
    const FoundCheckpoint found = open_checkpoint(o->path);
    if (o->json) {
      fmt::print("{}\n", inspect_json(found).dump(1));
    } else {
      inspect(found);
    }
  });
}

// One line per checkpoint; exit code 3 when one of them is damaged.
void verify_all(const std::string& path, bool json) {
  Json all = Json::array();
  bool damaged = false;
  for (const std::string& one : list_checkpoints(path)) {
    Json entry = {{"path", one}, {"whole", true}, {"damage", nullptr}};
    Manifest m;
    const std::string damage = damage_of([&] { m = verify_completely(one).manifest; });
    if (damage.empty()) {
      entry["files"] = m.files.size();
      entry["slices"] = m.pieces.size();
      if (!json)
        fmt::print("{}: whole, {} files, {} slices\n", one, m.files.size(), m.pieces.size());
    } else {
      damaged = true;
      entry["whole"] = false;
      entry["damage"] = damage;
      if (!json) fmt::print("{}: DAMAGED: {}\n", one, damage);
    }
    all.push_back(std::move(entry));
  }
  if (json) fmt::print("{}\n", Json{{"checkpoints", all}}.dump(1));
  if (damaged) throw CLI::RuntimeError(kExitFailed);
}

void add_verify_files(CLI::App& app) {
  struct Options {
    std::string path;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "verify", "Compares every byte with the hashes in the manifest, and the files with it");
  command->footer(
      "Example: weft checkpoint verify runs/tiny\n"
      "Exit code 3 when a checkpoint is damaged.");
  command->add_option("DIR", o->path, "A checkpoint, or a run's folder (all of its checkpoints)")
      ->required();
  command->add_flag("--json", o->json, "Prints JSON");
  command->callback([o] { verify_all(o->path, o->json); });
}

void add_reshard(CLI::App& app) {
  struct Options {
    std::string from, to;
    bool single = false;
    Resharding how;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "reshard", "Writes a checkpoint anew into one plain file, or any number of files");
  command->footer(
      "Example: weft checkpoint reshard runs/big runs/one --single --weights-only\n"
      "Writes OUT/checkpoints/step-N; `weft train` reads "
      "any checkpoint on any number of ranks without this.");
  command->add_option("DIR", o->from, "A checkpoint, or a run's folder (its newest one)")
      ->required();
  command->add_option("OUT", o->to, "A new folder")->required();
  CLI::Option* single =
      command->add_flag("--single", o->single, "One file with every tensor whole (the default)");
  command->add_option("--files", o->how.files, "Files over which the rows of every tensor are cut")
      ->check(CLI::Range(1, 100000))
      ->excludes(single);
  command->add_flag("--weights-only", o->how.weights_only, "Leaves the optimizer's moments out");
  command->callback([o] {
    if (std::filesystem::exists(o->to) && !std::filesystem::is_empty(o->to)) {
      throw ConfigError("{}: is not empty; name a new folder", o->to);
    }
    use_checkpoint(o->from, [&](const FoundCheckpoint& from) {
      fmt::print("{}\n", reshard(from, o->how, checkpoint_folder(o->to)));
    });
  });
}

void add_upcycle(CLI::App& app) {
  struct Options {
    std::string from, to;
    Upcycling how;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "upcycle", "A dense model as a mixture of experts that computes the same at first");
  command->footer(
      "Example: weft checkpoint upcycle runs/dense runs/sparse --experts 8 --active 2\n"
      "         weft checkpoint upcycle runs/dense runs/fine --experts 32 --active 8 --slices 4\n"
      "Writes OUT/checkpoints and OUT/config.toml; then: weft train OUT/config.toml");
  command->add_option("DIR", o->from, "A checkpoint of a dense model, or its run's folder")
      ->required();
  command->add_option("OUT", o->to, "A new folder")->required();
  command->add_option("--experts", o->how.experts, "Of a layer");
  command->add_option("--active", o->how.active, "Experts each token visits");
  command->add_option("--slices", o->how.slices,
                      "Slices of the dense width, each an expert; 1: whole copies");
  command->add_option("--layers", o->how.layers,
                      "Letters of the pattern; default: all with ffn = dense");
  command->add_option("--router", o->how.router, "Of the new experts")
      ->check(CLI::IsMember({"softmax", "topk_softmax", "sigmoid_bias"}));
  command->callback([o] {
    Runtime runtime(0);
    use_checkpoint(o->from, [&](const FoundCheckpoint& from) {
      const std::string path = upcycle(runtime, from, o->how, o->to);
      fmt::print("{}\ntrain it: weft train {}/config.toml\n", path, o->to);
    });
  });
}

}  // namespace

void add_checkpoint(CLI::App& app) {
  CLI::App* command = app.add_subcommand("checkpoint", "Look at, check and rewrite checkpoints");
  command->require_subcommand(1);
  add_inspect(*command);
  add_verify_files(*command);
  add_reshard(*command);
  add_upcycle(*command);
}

}  // namespace weft
