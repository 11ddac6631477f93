#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/data/indexed_dataset.h"
#include "core/data/recall_task.h"
#include "core/host_access.h"
#include "launcher/eval/scorer.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/random_model.h"

namespace weft::test {
namespace {

std::vector<int32_t> some_tokens(int count, int factor) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * i * factor + 3 * i) % 251);
  return tokens;
}

// -log softmax of each next token from one pass over the whole text, in double; and the most
// probable one.
std::vector<double> naive_losses(Exec& exec, const LoadedModel& model,
                                 const std::vector<int32_t>& tokens,
                                 std::vector<int32_t>* choices = nullptr) {
  const auto inputs = static_cast<int64_t>(tokens.size()) - 1;
  const Tensor ids = exec.empty({inputs}, DType::kI32);
  std::copy_n(tokens.begin(), inputs, host<int32_t>(ids));
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < inputs; ++i) rows.push_back(i);
  ModelStage::States states;
  const Tensor logits =
      model.decode(exec, ids, make_sequence({0, static_cast<int32_t>(inputs)}), rows, states);
  const int64_t vocab = logits.shape()[1];
  std::vector<double> losses;
  for (int64_t i = 0; i < inputs; ++i) {
    const float* at = host<float>(logits) + i * vocab;
    const double top = *std::max_element(at, at + vocab);
    if (choices != nullptr) {
      choices->push_back(
          static_cast<int32_t>(std::find(at, at + vocab, static_cast<float>(top)) - at));
    }
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(at[v] - top);
    losses.push_back(top + std::log(sum) - at[tokens[static_cast<size_t>(i) + 1]]);
  }
  return losses;
}

class Eval : public testing::Test {
 protected:
  Eval()
      : runtime_(2),
        saved_(runtime_),
        model_(runtime_, open_checkpoint(saved_.path()), DType::kF32) {}

  std::vector<double> naive(const std::vector<int32_t>& tokens) {
    return naive_losses(runtime_.exec(), model_, tokens);
  }
  nlohmann::json eval(std::vector<std::string> arguments, int ranks = 1) {
    const std::string json = folder_ / "result.json";
    arguments.insert(arguments.begin(), "eval");
    for (const std::string& more :
         {std::string("--checkpoint"), saved_.path(), std::string("--json"), json}) {
      arguments.push_back(more);
    }
    const Outcome o = ranks == 1 ? run_weft(arguments) : run_ranked(ranks, arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    return nlohmann::json::parse(get_file(json));
  }
  std::string refused(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "eval");
    arguments.insert(arguments.end(), {"--checkpoint", saved_.path()});
    const Outcome o = run_weft(arguments);
    EXPECT_EQ(o.code, 2) << o.out;
    return o.err;
  }
  std::string dataset(const std::vector<std::vector<int32_t>>& documents) {
    IndexedDatasetWriter writer(folder_ / "data", TokenType::kU16);
    for (const auto& d : documents) writer.add_document(d);
    writer.finish();
    return folder_ / "data";
  }

  Runtime runtime_;
  RandomModel saved_;
  LoadedModel model_;
  ScratchFolder folder_;
};

double sum(const std::vector<double>& values) {
  double s = 0;
  for (const double v : values) s += v;
  return s;
}

TEST_F(Eval, ScoresEveryTokenFromAllBeforeIt) {
  const auto a = some_tokens(1200, 7), b = some_tokens(37, 5);  // longer and shorter than a chunk
  const auto scores = score(runtime_.exec(), model_, {{a, 1}, {b, 30}, {{5}, 1}});
  const auto want_a = naive(a), want_b = naive(b);
  ASSERT_EQ(scores[0].size(), 1199u);
  ASSERT_EQ(scores[1].size(), 7u);
  ASSERT_TRUE(scores[2].empty());
  for (size_t i = 0; i < 1199; ++i)
    ASSERT_NEAR(scores[0][i].loss, want_a[i], 2e-4 * (1 + want_a[i])) << i;
  for (size_t i = 0; i < 7; ++i)
    ASSERT_NEAR(scores[1][i].loss, want_b[29 + i], 2e-4 * (1 + want_b[29 + i]));
}

TEST_F(Eval, PackedPerplexityCutsTheLineOfDocumentsIntoRows) {
  const auto a = some_tokens(90, 7), b = some_tokens(20, 3);
  const auto result = eval({"perplexity", "--data", dataset({a, b, {9}}), "--sequence", "32"});
  // 89 + 19 inputs in rows of 32: a in 32, 32, 25; then 7 and 12 of b.
  double want = 0;
  for (const auto& [from, begin, count] :
       std::vector<std::tuple<const std::vector<int32_t>*, int, int>>{
           {&a, 0, 32}, {&a, 32, 32}, {&a, 64, 25}, {&b, 0, 7}, {&b, 7, 12}}) {
    want += sum(naive({from->begin() + begin, from->begin() + begin + count + 1}));
  }
  EXPECT_EQ(result["tokens"], 108);
  EXPECT_NEAR(result["loss"].get<double>(), want / 108, 1e-4 * want / 108);
  EXPECT_NEAR(result["perplexity"].get<double>(), std::exp(want / 108),
              1e-3 * std::exp(want / 108));
}

TEST_F(Eval, SlidingPerplexityScoresEveryTokenOnce) {
  const auto a = some_tokens(75, 7);
  const auto result = eval({"perplexity", "--data", dataset({a}), "--mode", "sliding", "--sequence",
                            "32", "--stride", "10"});
  // Windows of 33 tokens at 0, 10, ..., each scoring the tokens that no earlier window scored.
  double want = sum(naive({a.begin(), a.begin() + 33}));
  for (int begin = 10, scored = 33; scored < 75; begin += 10) {
    const int end = std::min(75, begin + 33);
    const auto losses = naive({a.begin() + begin, a.begin() + end});
    for (int at = scored; at < end; ++at) want += losses[static_cast<size_t>(at - begin - 1)];
    scored = end;
  }
  EXPECT_EQ(result["tokens"], 74);
  EXPECT_NEAR(result["loss"].get<double>(), want / 74, 1e-4 * want / 74);
}

// GPT-2's bytes, no merges, and a template that starts every text with <|endoftext|>, id 0.
nlohmann::json bytes_after_a_start() {
  auto t = nlohmann::json::parse(get_file(in_project("tests/golden/tokenizers/gpt2.json")));
  auto& vocab = t["model"]["vocab"];
  for (auto entry = vocab.begin(); entry != vocab.end();) {
    entry = entry.value().get<int>() > 256 ? vocab.erase(entry) : std::next(entry);
  }
  t["model"]["merges"] = nlohmann::json::array();
  t["post_processor"] = nlohmann::json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
               {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0],
                                         "tokens": ["<|endoftext|>"]}}})");
  return t;
}

TEST_F(Eval, TextsStartAsTheTokenizersTemplateSays) {
  const auto tokenizer = bytes_after_a_start();
  put_file(folder_ / "tokenizer.json", tokenizer.dump());
  const std::string text = "woven";
  std::vector<int32_t> tokens = {0};
  for (const char c : text) {
    tokens.push_back(tokenizer["model"]["vocab"][std::string(1, c)].get<int32_t>());
  }
  put_file(folder_ / "text", text);
  const auto result =
      eval({"perplexity", "--text", folder_ / "text", "--tokenizer", folder_ / "tokenizer.json"});
  const double want = sum(naive(tokens));
  EXPECT_EQ(result["tokens"], 5);
  EXPECT_NEAR(result["loss"].get<double>(), want / 5, 1e-4 * want / 5);
}

TEST_F(Eval, PerTokenAveragesPositionsOverTexts) {
  const auto a = some_tokens(60, 7), b = some_tokens(50, 5), c = some_tokens(20, 3);
  const auto result = eval({"per-token", "--data", dataset({a, b, c}), "--length", "40",
                            "--buckets", "40", "--html", folder_ / "page.html"});
  const auto la = naive(a), lb = naive(b);
  EXPECT_EQ(result["texts"], 2);  // the third is too short
  for (size_t i = 0; i < 40; ++i) {
    const double want = (la[i] + lb[i]) / 2;
    ASSERT_NEAR(result["losses"][i].get<double>(), want, 2e-4 * (1 + want)) << i;
  }
  EXPECT_NE(get_file(folder_ / "page.html").find("<polyline"), std::string::npos);
  EXPECT_NE(refused({"per-token", "--data", folder_ / "data", "--length", "60"}).find("at most 59"),
            std::string::npos);
}

TEST_F(Eval, NumbersDoNotDependOnTheNumberOfRanks) {
  std::vector<std::vector<int32_t>> documents;
  for (int d = 0; d < 12; ++d) documents.push_back(some_tokens(30 + 7 * d, d + 2));
  const std::string data = dataset(documents);
  for (const std::vector<std::string>& what : std::vector<std::vector<std::string>>{
           {"perplexity", "--data", data, "--sequence", "48"},
           {"recall", "--pairs", "3,5", "--examples", "9", "--vocab", "40"},
           {"needle", "--lengths", "200", "--depths", "0,100", "--trials", "3"}}) {
    EXPECT_EQ(eval(what, 1).dump(), eval(what, 2).dump()) << what[0];
  }
}

TEST_F(Eval, RecallCountsTheValuesThatAreTheFirstChoice) {
  const auto result =
      eval({"recall", "--pairs", "4", "--examples", "20", "--vocab", "41", "--seed", "9"});
  double right = 0;
  for (int64_t i = 0; i < 20; ++i) {
    const RecallExample e = recall_example({.vocab = 41, .pairs = 4, .seed = 9}, i);
    std::vector<int32_t> choices;
    naive_losses(runtime_.exec(), model_, e.tokens, &choices);
    for (const int64_t answer : e.answers) {
      const auto at = static_cast<size_t>(answer);
      right += choices[at - 1] == e.tokens[at] ? 1 : 0;
    }
  }
  EXPECT_DOUBLE_EQ(result["rows"][0]["accuracy"].get<double>(), right / 80);
  EXPECT_NE(refused({"recall", "--pairs", "30", "--vocab", "41"}).find("at most 20 pairs"),
            std::string::npos);
}

TEST_F(Eval, ChoicePicksTheMostProbableOption) {
  const std::vector<std::string> options = {" cold", " a very long option here", "x"};
  std::vector<double> plain, by_length;
  for (const std::string& option : options) {
    const std::string context = "Water is", all = context + option;
    const auto losses = naive({all.begin(), all.end()});
    double sum = 0;
    for (size_t i = context.size() - 1; i < losses.size(); ++i) sum -= losses[i];
    plain.push_back(sum);
    by_length.push_back(sum / static_cast<double>(option.size()));
  }
  const auto best = std::max_element(plain.begin(), plain.end()) - plain.begin();
  const auto best_by_length =
      std::max_element(by_length.begin(), by_length.end()) - by_length.begin();
  std::string lines;
  for (int answer = 0; answer < 3; ++answer) {
    lines +=
        nlohmann::json{{"context", "Water is"}, {"options", options}, {"answer", answer}}.dump() +
        "\n";
  }
  put_file(folder_ / "q.jsonl", lines + "\n" + lines.substr(0, lines.find('\n')) + "\n");
  const auto result = eval({"choice", "--file", folder_ / "q.jsonl"});
  EXPECT_EQ(result["questions"], 4);
  EXPECT_DOUBLE_EQ(result["acc"].get<double>(), best == 0 ? 0.5 : 0.25);
  EXPECT_DOUBLE_EQ(result["acc_norm"].get<double>(), best_by_length == 0 ? 0.5 : 0.25);
  EXPECT_EQ(eval({"choice", "--file", folder_ / "q.jsonl", "--shots", "1"})["questions"], 3);

  put_file(folder_ / "bad.jsonl",
           "{\"context\": \"a\", \"options\": [\"b\", \"c\"], \"answer\": 2}\n");
  const std::string message = refused({"choice", "--file", folder_ / "bad.jsonl"});
  EXPECT_NE(message.find("bad.jsonl:1: answer 2"), std::string::npos) << message;
}

TEST_F(Eval, NeedleRefusesATextTooShortForIt) {
  EXPECT_NE(refused({"needle", "--lengths", "20"}).find("at least"), std::string::npos);
  EXPECT_NE(refused({"perplexity"}).find("--data"), std::string::npos);
  const auto result = eval({"needle", "--lengths", "150,300", "--mode", "easy", "--trials", "1",
                            "--html", folder_ / "page.html"});
  EXPECT_EQ(result["rows"].size(), 10u);
  EXPECT_NE(get_file(folder_ / "page.html").find("<rect"), std::string::npos);
}

TEST(BenchDecode, StatesStayConstantAndCachesGrow) {
  const ScratchFolder folder;
  std::map<std::string, std::vector<int64_t>> bytes;
  for (const std::string fill : {"real", "repeat"}) {
    const Outcome o = run_weft({"bench", "decode", in_project("configs/tiny.toml"), "--contexts",
                                "1024,1500,3000", "--batches", "1,2", "--tokens", "1", "--fill",
                                fill, "--json", folder / "d.json", "--html", folder / "d.html"});
    ASSERT_EQ(o.code, 0) << o.err;
    const nlohmann::json result = nlohmann::json::parse(get_file(folder / "d.json"));
    for (const auto& row : result["rows"]) {
      const std::string key =
          fmt::format("{} {} {}", fill, row["letter"].get<std::string>(), row["batch"].get<int>());
      bytes[key].push_back(row["state_bytes"].get<int64_t>());
    }
    EXPECT_NE(get_file(folder / "d.html").find("<polyline"), std::string::npos);
  }
  EXPECT_EQ(bytes["real L 1"], (std::vector<int64_t>(3, bytes["real L 1"][0])));
  EXPECT_EQ(bytes["real L 1"], bytes["repeat L 1"]);
  EXPECT_EQ(bytes["real L 2"][0], 2 * bytes["real L 1"][0]);
  EXPECT_GE(bytes["real N 1"][2], 2 * bytes["real N 1"][0]);
  EXPECT_GT(2 * bytes["repeat N 1"][2], 3 * bytes["repeat N 1"][0]);
}

}  // namespace
}  // namespace weft::test
