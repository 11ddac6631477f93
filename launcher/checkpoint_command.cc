#include <filesystem>
#include <map>

#include "launcher/commands.h"
#include "launcher/upcycle.h"

namespace weft {
namespace {

struct TensorSummary {
  Shape global;
  int64_t pieces = 0;
};

void inspect(const std::string& path) {
  const FoundCheckpoint found = open_checkpoint(path);
  const Manifest& m = found.manifest;
  std::map<std::string, TensorSummary> tensors;
  int64_t elements = 0, bytes = 0;
  for (const Manifest::Piece& piece : m.pieces) {
    TensorSummary& t = tensors[piece.tensor];
    t.global = piece.global;
    ++t.pieces;
    if (piece.tensor.starts_with("parameters/")) elements += piece.slice.extent.elements();
  }
  for (const Manifest::File& file : m.files) bytes += file.bytes;
  fmt::print(
      "{}\nstep {}, {} sequences, {} updates, seed {}\n{} parameters, {} tensors in {} file(s) of "
      "{} bytes\n",
      found.path, m.step, m.samples, m.updates, m.seed, elements, tensors.size(), m.files.size(),
      bytes);
  for (const auto& [name, size] : m.layout) fmt::print("  {} = {}\n", name, size);
  for (const auto& [name, t] : tensors) {
    fmt::print("{:60} {} {}\n", name, to_string(t.global),
               t.pieces == 1 ? "" : fmt::format("in {} pieces", t.pieces));
  }
  fmt::print("\n{}", m.config);
}

void add_inspect(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("inspect", "What a checkpoint holds: tensors, shapes, config");
  command->footer("Example: weft checkpoint inspect runs/tiny");
  command->add_option("DIR", *path, "A checkpoint, or a run's folder (its newest one)")->required();
  command->callback([path] { inspect(*path); });
}

void add_verify_files(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("verify", "Compares every byte with the hashes in the manifest");
  command->footer("Example: weft checkpoint verify runs/tiny/checkpoints/step-000000500");
  command->add_option("DIR", *path, "A checkpoint, or a run's folder (its newest one)")->required();
  command->callback([path] {
    const FoundCheckpoint found = open_checkpoint(*path);
    fmt::print("{}: whole, {} files, {} slices\n", found.path, found.manifest.files.size(),
               found.manifest.pieces.size());
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
    const std::string path = upcycle(runtime, open_checkpoint(o->from), o->how, o->to);
    fmt::print("{}\ntrain it: weft train {}/config.toml\n", path, o->to);
  });
}

}  // namespace

void add_checkpoint(CLI::App& app) {
  CLI::App* command = app.add_subcommand("checkpoint", "Look at, check and rewrite checkpoints");
  command->require_subcommand(1);
  add_inspect(*command);
  add_verify_files(*command);
  add_upcycle(*command);
}

}  // namespace weft
