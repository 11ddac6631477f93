#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/host_access.h"
#include "launcher/generate/generator.h"
#include "tests/support/near.h"
#include "tests/support/program.h"
#include "tests/support/random_model.h"

namespace weft::test {
namespace {

Tensor ids(Exec& exec, const std::vector<int32_t>& tokens) {
  const Tensor t = exec.empty({static_cast<int64_t>(tokens.size())}, DType::kI32);
  std::copy(tokens.begin(), tokens.end(), host<int32_t>(t));
  return t;
}

std::vector<int32_t> some_tokens(int count, int factor) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * i * factor + 3 * i) % 251);
  return tokens;
}

TEST(Decoding, TokenByTokenGivesTheLogitsOfOnePass) {
  Runtime runtime(2);
  const RandomModel saved(runtime);
  const LoadedModel model(runtime, open_checkpoint(saved.path()), DType::kF32);
  Exec& exec = runtime.exec();
  const std::vector<int32_t> tokens =
      some_tokens(83, 7);  // longer than a chunk, a window and a cache's first capacity
  std::vector<int64_t> rows(tokens.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  ModelStage::States states;
  const Tensor whole =
      model.decode(exec, ids(exec, tokens), make_sequence({0, static_cast<int32_t>(tokens.size())}),
                   rows, states);
  states.clear();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Sequence next = make_sequence({0, 1}, {static_cast<int32_t>(i)});
    const Tensor logits = model.decode(exec, ids(exec, {tokens[i]}), next, {0}, states);
    EXPECT_TRUE(Near(logits, whole.row_range(static_cast<int64_t>(i), 1), 1e-4)) << "token " << i;
  }
}

std::vector<std::vector<int32_t>> continued(Runtime& runtime, const LoadedModel& model,
                                            const std::vector<std::vector<int32_t>>& prompts,
                                            int count) {
  Generator generator(runtime.exec(), model, {.temperature = 0.7, .top_k = 20}, prompts);
  std::vector<std::vector<int32_t>> out(prompts.size());
  for (int i = 0; i < count; ++i) {
    const std::vector<int32_t> tokens = generator.next();
    for (size_t s = 0; s < tokens.size(); ++s) out[s].push_back(tokens[s]);
    if (i == 4) generator.stop(1);
  }
  return out;
}

TEST(Generation, OfASequenceDoesNotDependOnItsNeighbours) {
  Runtime runtime(2);
  const RandomModel saved(runtime);
  const LoadedModel model(runtime, open_checkpoint(saved.path()), DType::kF32);
  const auto first = some_tokens(600, 3);  // more than one prefill chunk
  const auto together =
      continued(runtime, model, {first, some_tokens(3, 5), some_tokens(17, 11)}, 12);
  Generator alone(runtime.exec(), model, {.temperature = 0.7, .top_k = 20}, {first});
  for (int i = 0; i < 12; ++i) EXPECT_EQ(alone.next()[0], together[0][static_cast<size_t>(i)]) << i;
  EXPECT_EQ(together[1][7], -1);  // stopped
}

TEST(Sampling, ChoosesAmongTheAllowedByTheirProbabilities) {
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f, -1.0f, 2.0f};
  const auto pick = [&](const Sampling& how, double u, const std::vector<int32_t>& before = {}) {
    return sample(how, logits.data(), 5, before, u);
  };
  EXPECT_EQ(pick({.temperature = 0}, 0.9), 1);  // ties: the lower id
  EXPECT_EQ(pick({.top_k = 2}, 0.999), 4);
  EXPECT_EQ(pick({.top_k = 2}, 0.0), 1);
  EXPECT_EQ(pick({.top_p = 0.5}, 0.999), 4);  // 1 and 4 have more than half in total
  EXPECT_EQ(pick({.temperature = 0, .repetition_penalty = 3.0}, 0.5, {1, 4}), 2);
  const double sum = 1 + 2 * std::exp(2.0) + std::exp(1.0) + std::exp(-1.0);
  int count = 0;
  for (int i = 0; i < 1000; ++i) count += pick({}, (i + 0.5) / 1000) == 2;
  EXPECT_NEAR(count, 1000 * std::exp(1.0) / sum, 1.0);
}

TEST(GenerateCommand, WritesTextAndRefusesWhatItCannotContinue) {
  Runtime runtime(1);
  const RandomModel saved(runtime);
  const std::string json = saved.path() + "/out.json";
  const Outcome good = run_weft({"generate", "--checkpoint", saved.path(), "--prompt", "ab",
                                 "--tokens", "9", "--json", json});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(good.out.substr(0, 2), "ab");
  const auto result = nlohmann::json::parse(get_file(json));
  EXPECT_LE(result["tokens"], 9);
  EXPECT_GT(result["state_bytes"], 0);
  const Outcome again =
      run_weft({"generate", "--checkpoint", saved.path(), "--prompt", "ab", "--tokens", "9"});
  EXPECT_EQ(again.out, good.out);

  const Outcome empty = run_weft({"generate", "--checkpoint", saved.path(), "--prompt", ""});
  EXPECT_EQ(empty.code, 2);
  EXPECT_NE(empty.err.find("at least one character"), std::string::npos) << empty.err;
  const Outcome bytes = run_weft({"generate", "--checkpoint", saved.path(), "--prompt", "a\xff"});
  EXPECT_EQ(bytes.code, 2);
  EXPECT_NE(bytes.err.find("byte 1 (0xff) is not UTF-8"), std::string::npos) << bytes.err;
  const Outcome stop =
      run_weft({"generate", "--checkpoint", saved.path(), "--prompt", "a", "--stop", ""});
  EXPECT_EQ(stop.code, 2);
  EXPECT_NE(stop.err.find("--stop: is empty"), std::string::npos) << stop.err;
  const Outcome nothing =
      run_weft({"generate", "--checkpoint", saved.path() + "/none", "--prompt", "a"});
  EXPECT_EQ(nothing.code, 2);
}

}  // namespace
}  // namespace weft::test
