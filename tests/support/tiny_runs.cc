#include "tests/support/tiny_runs.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/rng.h"
#include "core/data/indexed_dataset.h"
#include "parallel/checkpoint/checkpoint_folder.h"

namespace weft::test {

TinyRuns::TinyRuns() { write_corpus(corpus_, 9); }

void TinyRuns::write_corpus(const std::string& prefix, uint64_t seed) {
  IndexedDatasetWriter writer(prefix, TokenType::kU16);
  const RandomStream random(seed, "tiny corpus");
  for (uint64_t d = 0; d < 40; ++d) {
    std::vector<int32_t> tokens;
    for (uint64_t t = 0; t < 170 + d; ++t) {
      tokens.push_back(static_cast<int32_t>(random.below(d * 1000 + t, 90)));
    }
    writer.add_document(tokens);
  }
  writer.finish();
}

std::vector<std::string> TinyRuns::arguments(const std::string& run,
                                             const std::vector<std::string>& more) const {
  std::vector<std::string> all = {"train",
                                  in_project("configs/tiny.toml"),
                                  "data.train=[\"" + corpus_ + "\"]",
                                  "run.dir=" + (folder_ / run),
                                  "train.steps=12",
                                  "train.sequence=32",
                                  "train.global_batch=4",
                                  "train.micro_batch=2",
                                  "train.precision=bf16",
                                  "model.moe.router=sigmoid_bias",
                                  "model.moe.bias_rate=0.01",
                                  "optimizer.warmup=2",
                                  "optimizer.schedule=constant",
                                  "run.checkpoint_every=4"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::map<int64_t, double> TinyRuns::losses(const std::string& run) const {
  std::map<int64_t, double> out;
  std::ifstream file(folder_ / (run + "/metrics.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    out[json["step"].get<int64_t>()] = json["loss"].get<double>();
  }
  return out;
}

std::vector<std::filesystem::path> TinyRuns::checkpoints(const std::string& run) const {
  const auto paths = published_checkpoints(folder_ / (run + "/checkpoints"));
  std::vector<std::filesystem::path> found(paths.begin(), paths.end());
  std::sort(found.begin(), found.end());
  return found;
}

std::string TinyRuns::weights(const std::string& run) const {
  return get_file(checkpoints(run).back() / "rank-00000.h5");
}

}  // namespace weft::test
