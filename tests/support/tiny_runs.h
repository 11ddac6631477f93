#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace weft::test {

// `weft train` on one rank, as a user starts it: a small corpus and runs of twelve steps on it, a
// checkpoint after every fourth. Routers have biases that change at every step, so that losing them
// changes the run.
class TinyRuns : public testing::Test {
 protected:
  TinyRuns();

  // 40 documents of 170 to 209 random ids below 90.
  static void write_corpus(const std::string& prefix, uint64_t seed);
  std::vector<std::string> arguments(const std::string& run,
                                     const std::vector<std::string>& more = {}) const;

  std::map<int64_t, double> losses(const std::string& run) const;                // by step
  std::vector<std::filesystem::path> checkpoints(const std::string& run) const;  // oldest first
  std::string weights(const std::string& run) const;  // the file of the newest checkpoint

  ScratchFolder folder_;
  std::string corpus_ = folder_ / "corpus";
};

}  // namespace weft::test
