// Comparison of a resumed run with its checkpoint: changes are refused, or accepted with a remark.
#include <fmt/format.h>

#include <fstream>

#include "core/data/indexed_dataset.h"
#include "tests/support/tiny_runs.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

class ResumeCheck : public TinyRuns {
 protected:
  // A run of four steps, to be resumed.
  void train_four(const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"train.steps=4"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome o = run_weft(arguments("run", all));
    ASSERT_EQ(o.code, 0) << o.err;
  }
  Outcome resume(std::vector<std::string> more = {}) {
    more.insert(more.begin(), "train.steps=6");
    return run_weft(arguments("run", more));
  }
  static void expect_refused(const Outcome& o, const std::string& why) {
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_NE(o.err.find(why), std::string::npos) << o.err;
  }
  static void expect_said(const Outcome& o, const std::string& what) {
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.out.find("after step 4"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find(what), std::string::npos) << o.out;
  }
  std::string sources(const std::string& list) const { return "data.train=[" + list + "]"; }
  std::string quoted(const std::string& name) const { return "\"" + (folder_ / name) + "\""; }
};

TEST_F(ResumeCheck, RefusesAnotherModel) {
  train_four({"model.layer.N.window=16"});
  expect_refused(resume({"model.layer.N.window=16", "model.moe.experts=8"}),
                 "model.moe.experts = 8");
  expect_refused(resume(), "model.layer.N.window = nothing");  // a removed option
  expect_said(resume({"model.layer.N.window=16", "model.moe.bias_rate=0.02"}),
              "model.moe.bias_rate 0.01 -> 0.02");
}

// One bit in the middle of 16 MiB.
TEST_F(ResumeCheck, RefusesAFileThatChangedAnywhere) {
  {
    IndexedDatasetWriter writer(corpus_, TokenType::kU16);
    const std::vector<int32_t> tokens(1 << 20, 64);
    for (int d = 0; d < 8; ++d) writer.add_document(tokens);
    writer.finish();
  }
  train_four();
  for (const char* ending : {".bin", ".idx"}) {
    std::fstream file(corpus_ + ending, std::ios::in | std::ios::out | std::ios::binary);
    // Two entries of the .idx: moves the border between two documents.
    const auto at =
        ending == std::string(".bin") ? std::streamoff{(8 << 20) + 1234568} : std::streamoff{34};
    file.seekg(at);
    const char old = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(old ^ 1)).flush();
    const Outcome o = resume();
    expect_refused(
        o, ending == std::string(".bin") ? corpus_ + ".bin: has changed since" : "corpus.idx");
    file.seekp(at);
    file.put(old).flush();
  }
  const Outcome back = resume();
  expect_said(back, "train.steps 4 -> 6");
  EXPECT_EQ(back.out.find("samples are other ones"), std::string::npos) << back.out;
}

TEST_F(ResumeCheck, TakesTheSameBytesFromAnotherPlace) {
  train_four();
  fs::create_directories(folder_ / "moved");
  for (const char* ending : {".bin", ".idx"}) {
    fs::rename(corpus_ + ending, (folder_ / "moved/text") + ending);
  }
  const Outcome o = resume({sources(quoted("moved/../moved/text.bin"))});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(losses("run").size(), 6u);
}

TEST_F(ResumeCheck, RefusesOtherDatasets) {
  write_corpus(folder_ / "other", 10);
  train_four();
  expect_refused(resume({sources(quoted("other"))}), "whose content is another");
  expect_refused(resume({sources(quoted("corpus") + "," + quoted("other"))}),
                 "whose content is another");
  const Outcome o = resume({sources(quoted("other")), "run.init=" + (folder_ / "run")});
  expect_refused(o, "run.resume=never");
  // The suggestion of the message works.
  EXPECT_EQ(resume({sources(quoted("other")), "run.dir=" + (folder_ / "new"),
                    "run.init=" + checkpoints("run").back().string()})
                .code,
            0);
  EXPECT_EQ(resume({sources(quoted("other")), "run.resume=never"}).code, 0);
}

TEST_F(ResumeCheck, RefusesAnotherOrderAndTellsOtherWeights) {
  write_corpus(folder_ / "other", 10);
  const std::string one = fmt::format("[0.5,{}],[0.5,{}]", quoted("corpus"), quoted("other"));
  const std::string two = fmt::format("[0.5,{}],[0.5,{}]", quoted("other"), quoted("corpus"));
  const std::string weighed = fmt::format("[0.75,{}],[0.25,{}]", quoted("corpus"), quoted("other"));
  train_four({sources(one)});
  expect_refused(resume({sources(two)}), "the same in another order");
  expect_said(resume({sources(weighed)}),
              "weights of data.train [0.5, 0.5] -> [0.75, 0.25]: samples are other ones");
}

TEST_F(ResumeCheck, TellsWhatChangesTheSamples) {
  train_four();
  expect_said(
      resume({"train.seed=2", "train.sequence=16", "data.split=0.1", "data.pack=false"}),
      "changed  data.split 0.0 -> 0.1, train.seed 1 -> 2, train.sequence 32 -> 16: samples are");
  EXPECT_NE(get_file(folder_ / "run/log.txt").find("train.seed 1 -> 2"), std::string::npos);
}

TEST_F(ResumeCheck, TellsWhatChangesTheRun) {
  train_four();
  expect_said(
      resume({"data.pack=false", "optimizer.lr=1e-3", "train.global_batch=8"}),
      "changed  data.pack true -> false, optimizer.lr 0.003 -> 0.001, train.global_batch 4 -> 8, "
      "train.steps 4 -> 6\n");
}

TEST_F(ResumeCheck, SaysNothingWhereNothingChanged) {
  train_four({"train.steps=6", "run.checkpoint_every=4"});
  fs::remove_all(folder_ / "run/checkpoints/step-000000006");
  const Outcome o = resume();
  expect_said(o, "after step 4");
  EXPECT_EQ(o.out.find("changed  "), std::string::npos) << o.out;
}

TEST_F(ResumeCheck, RefusesValidationThatChangedAndTellsAnother) {
  write_corpus(folder_ / "held", 11);
  write_corpus(folder_ / "other", 12);
  const auto valid = [&](const std::string& name) { return "data.valid=[" + quoted(name) + "]"; };
  train_four({valid("held")});
  write_corpus(folder_ / "held", 13);
  expect_refused(resume({valid("held")}), "held.bin: has changed since");
  expect_said(resume({valid("other")}),
              "data.valid [" + (folder_ / "held") + "] -> [" + (folder_ / "other"));
}

TEST_F(ResumeCheck, RefusesAnotherTokenizer) {
  const auto tokenizer = [&](const std::string& name, const std::string& first) {
    put_file(folder_ / name,
             R"({"model":{"type":"BPE","vocab":{")" + first +
                 R"(":0,"<|endoftext|>":1},"merges":[]},)"
                 R"("added_tokens":[{"id":1,"content":"<|endoftext|>","special":true}],)"
                 R"("pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"}})");
    return "data.tokenizer=" + (folder_ / name);
  };
  const std::string first = tokenizer("a.json", "a");
  train_four({first});
  expect_refused(resume({tokenizer("b.json", "b")}), "the tokenizer.json is another");
  EXPECT_EQ(resume({tokenizer("c.json", "a")}).code, 0);
}

}  // namespace
}  // namespace weft::test
