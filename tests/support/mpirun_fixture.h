#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/data/indexed_dataset.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace weft::test {

// `weft train` on several ranks, as a user starts it: a small corpus and a run of seconds on it.
class Mpirun : public testing::Test {
 protected:
  Mpirun() {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    IndexedDatasetWriter writer(folder / "corpus", TokenType::kU16);
    const RandomStream random(5, "corpus");
    for (uint64_t d = 0; d < 60; ++d) {
      std::vector<int32_t> tokens;
      for (uint64_t t = 0; t < 200; ++t) {
        tokens.push_back(
            static_cast<int32_t>(t % 3 == 0 ? random.below(d * 1000 + t, 16) : 32 + t % 64));
      }
      writer.add_document(tokens);
    }
    writer.finish();
  }

  // Twelve sequences a step: 1, 2, 3 and 4 ranks share them evenly. Layouts agree within rounding
  // of sums, unless Adam amplifies it (see data_parallel_test).
  std::vector<std::string> train(const std::string& run,
                                 const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train",
                                          in_project("configs/tiny.toml"),
                                          "data.train=[\"" + (folder / "corpus") + "\"]",
                                          "run.dir=" + (folder / run),
                                          "train.steps=4",
                                          "train.sequence=32",
                                          "train.global_batch=12",
                                          "train.micro_batch=1",
                                          "optimizer.warmup=1",
                                          "optimizer.eps=1e-3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::vector<double> losses(const std::string& run) {
    std::vector<double> out;
    std::ifstream file(folder / (run + "/metrics.jsonl"));
    for (std::string line; std::getline(file, line);)
      out.push_back(nlohmann::json::parse(line)["loss"].get<double>());
    return out;
  }

  void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 2e-5 * want[i]) << "step " << i + 1;
  }

  const ScratchFolder folder;
};

}  // namespace weft::test
