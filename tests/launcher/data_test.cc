#include <sys/wait.h>
#include <zlib.h>

#include <csignal>
#include <regex>

#include "core/base/error.h"
#include "launcher/data/data_build.h"
#include "tests/support/data_command.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace weft::test {
namespace {

void put_gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

TEST(DataBuild, MakesADocumentOfEveryFile) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "in");
  put_file(folder / "in/b.txt", "second\n");
  put_file(folder / "in/a.txt", "first\n");
  put_gzip(folder / "in/c.gz", "third, compressed\n");
  put_file(folder / "in/d.bin", "\xff\xfe not text");
  put_file(folder / "in/e.txt", " \n");
  std::filesystem::create_symlink(folder / "in/a.txt", folder / "in/link.txt");
  const std::string said = run_data({"build", "--out", folder / "made/x", folder / "in"});
  EXPECT_EQ(documents_of(folder / "made/x"), (Texts{"first\n", "second\n", "third, compressed\n"}));
  EXPECT_NE(said.find("34 tokens in 3 documents from 5 files"), std::string::npos) << said;
  EXPECT_NE(said.find("skipped 1 that are not UTF-8 text, the first in "), std::string::npos)
      << said;
  EXPECT_NE(said.find("skipped 1 without text"), std::string::npos) << said;
  EXPECT_EQ(IndexedDataset(folder / "made/x").type(), TokenType::kU16);
  EXPECT_EQ(get_file(folder / "made/x.tokenizer.json"), ByteTokenizer().json());
}

TEST(DataBuild, SplitsFilesByLineAndParagraph) {
  const ScratchFolder folder;
  put_file(folder / "in", "one\r\ntwo\n\n \nthree");
  run_data({"build", "--out", folder / "line", "--document", "line", folder / "in"});
  EXPECT_EQ(documents_of(folder / "line"), (Texts{"one", "two", "three"}));
  run_data({"build", "--out", folder / "paragraph", "--document", "paragraph", folder / "in"});
  EXPECT_EQ(documents_of(folder / "paragraph"), (Texts{"one\ntwo\n", "three\n"}));
}

// Longer than the reader's pieces of 256 KiB, which cut lines anywhere.
TEST(DataBuild, ReadsLongFilesInPieces) {
  const ScratchFolder folder;
  std::string text;
  Texts lines;
  for (int i = 0; i < 40000; ++i) {
    lines.push_back(fmt::format("line {} \u20ac", i * i));
    text += lines.back() + "\n";
  }
  put_gzip(folder / "in.gz", text);
  run_data({"build", "--out", folder / "line", "--document", "line", folder / "in.gz"});
  EXPECT_EQ(documents_of(folder / "line"), lines);
  run_data({"build", "--out", folder / "file", folder / "in.gz"});
  EXPECT_EQ(documents_of(folder / "file"), Texts{text});
}

TEST(DataBuild, ReadsJsonLines) {
  const ScratchFolder folder;
  put_file(folder / "in", "{\"id\": 1, \"body\": \"a\\nb\"}\n\n{\"body\": \"\\u20ac\"}\n");
  run_data({"build", "--out", folder / "x", "--jsonl", "--key", "body", folder / "in"});
  EXPECT_EQ(documents_of(folder / "x"), (Texts{"a\nb", "\u20ac"}));
  const auto message = [&](const std::string& content) {
    put_file(folder / "bad", content);
    return message_of<ConfigError>([&] {
      run_data({"build", "--out", folder / "y", "--jsonl", folder / "bad"});
    });
  };
  EXPECT_NE(message("{\"text\": \"x\"}\n{\"txt\": \"x\"}\n")
                .find("bad:2: no text under the key \"text\"; "
                      "it has texts under [txt]"),
            std::string::npos);
  EXPECT_NE(message("{\"text\": \"x\"\n").find("bad:1: not JSON: parse error at"),
            std::string::npos);
  EXPECT_NE(message("[1]\n").find("bad:1: a JSON array instead of an object"), std::string::npos);
  EXPECT_NE(message("{\"text\": 3}\n").find("under the key \"text\" stands a number"),
            std::string::npos);
  EXPECT_NE(message("{\"text\": \"\xff\"}\n").find("ill-formed UTF-8 byte"), std::string::npos);
  EXPECT_LT(message("{\"text\": \"" + std::string(100000, 'x') + "\n").size(), 300u);
  EXPECT_FALSE(std::filesystem::exists(folder / "y.bin"));
}

TEST(DataBuild, StripsManualPages) {
  const ScratchFolder folder;
  put_gzip(folder / "x.1.gz", ".TH X 1\n.SH NAME\nx \\- a \\fBprogram\\fR\n");
  put_file(folder / "y.1", ".so man1/x.1\n");
  run_data({"build", "--out", folder / "x", "--strip", "roff", folder / "x.1.gz", folder / "y.1"});
  EXPECT_EQ(documents_of(folder / "x"), Texts{"NAME\nx - a program\n"});
}

TEST(DataBuild, StopsAfterEnoughText) {
  const ScratchFolder folder;
  put_file(folder / "in", "aaaa\nbbbb\ncccc\ndddd\n");
  run_data(
      {"build", "--out", folder / "x", "--document", "line", "--max-bytes", "5", folder / "in"});
  EXPECT_EQ(documents_of(folder / "x"), (Texts{"aaaa", "bbbb"}));
  run_data({"build", "--out", folder / "y", "--max-bytes", "1KB", folder / "in"});
  EXPECT_EQ(documents_of(folder / "y").size(), 1u);
}

TEST(DataBuild, ShufflesFilesTheSameWayForASeed) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "in");
  Texts names;
  for (char c = 'a'; c <= 'z'; ++c) {
    names.push_back(std::string(1, c));
    put_file(folder / ("in/" + names.back()), names.back());
  }
  for (const char* out : {"x", "y"})
    run_data({"build", "--out", folder / out, "--shuffle", "3", folder / "in"});
  run_data({"build", "--out", folder / "z", "--shuffle", "4", folder / "in"});
  Texts x = documents_of(folder / "x");
  EXPECT_EQ(x, documents_of(folder / "y"));
  EXPECT_NE(x, documents_of(folder / "z"));
  EXPECT_NE(x, names);
  std::sort(x.begin(), x.end());
  EXPECT_EQ(x, names);
}

TEST(DataBuild, RefusesWhatCannotWork) {
  const ScratchFolder folder;
  put_file(folder / "in", "text");
  put_file(folder / "empty", "");
  EXPECT_THROW(run_data({"build", "--out", folder / "x", folder / "absent"}), ConfigError);
  EXPECT_THROW(run_data({"build", "--out", folder / "x", folder / "empty"}), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(folder / "x.bin"));
  EXPECT_THROW(run_data({"build", "--out", folder / "x", "--document", "page", folder / "in"}),
               CLI::Error);
  EXPECT_THROW(
      run_data({"build", "--out", folder / "x", "--jsonl", "--strip", "roff", folder / "in"}),
      ConfigError);
  run_data({"build", "--out", folder / "x", folder / "in"});
  const std::string message = message_of<ConfigError>([&] {
    run_data({"build", "--out", folder / "x", folder / "in"});
  });
  EXPECT_NE(message.find("--force"), std::string::npos);
  put_file(folder / "in", "other");
  run_data({"build", "--out", folder / "x", "--force", folder / "in"});
  EXPECT_EQ(documents_of(folder / "x"), Texts{"other"});
  std::string damaged;
  put_gzip(folder / "g.gz", std::string(1000, 'x'));
  damaged = get_file(folder / "g.gz");
  put_file(folder / "g.gz", damaged.substr(0, damaged.size() / 2));
  EXPECT_THROW(run_data({"build", "--out", folder / "g", folder / "g.gz"}), ConfigError);
}

const std::string kSmallVocabulary = "tests/golden/tokenizers/llama3.json";

// Lines of words; every seventh is empty, every eleventh is not valid text.
void put_lines(const std::string& path) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += i % 7 == 0    ? ""
            : i % 11 == 0 ? "\xff"
                          : fmt::format("line {} of caf\u00e9s, {} times", i, i * i);
    text += "\n";
  }
  put_file(path, text);
}

DataBuild small_build(const std::string& in, const std::string& out) {
  DataBuild o;
  o.from.inputs = {in};
  o.from.document = TextInputs::Document::kLine;
  o.tokenizer = in_project(kSmallVocabulary);
  o.out = out;
  o.batch_bytes = 200;  // many batches of a few lines
  return o;
}

TEST(DataBuild, EncodesWithATokenizerOnAnyNumberOfThreads) {
  const ScratchFolder folder;
  put_lines(folder / "in");
  for (const int threads : {1, 2, 5}) {
    DataBuild o = small_build(folder / "in", folder / fmt::format("x{}", threads));
    o.threads = threads;
    const DataBuilt built = build_dataset(o);
    EXPECT_EQ(built.not_text, 31);
    EXPECT_EQ(built.empty, 58);
    EXPECT_EQ(built.documents, 400 - 31 - 58);
  }
  EXPECT_EQ(files_of_dataset(folder / "x1"), files_of_dataset(folder / "x2"));
  EXPECT_EQ(files_of_dataset(folder / "x1"), files_of_dataset(folder / "x5"));
  const auto tokenizer = load_tokenizer(in_project(kSmallVocabulary));
  const IndexedDataset data(folder / "x1");
  EXPECT_EQ(data.read(0), tokenizer->encode_document("line 1 of caf\u00e9s, 1 times"));
  EXPECT_EQ(get_file(folder / "x1.tokenizer.json"), get_file(in_project(kSmallVocabulary)));
  EXPECT_EQ(run_data({"inspect", folder / "x1", "--document", "1"}),
            "line 2 of caf\u00e9s, 4 times\n");
  EXPECT_NE(run_data({"inspect", folder / "x1"}).find("vocabulary 420 ids"), std::string::npos);
  EXPECT_NE(run_data({"check", folder / "x1"}).find("all ids below 420"), std::string::npos);
}

// After repeated kills at any batch, the dataset has the same bytes.
TEST(DataBuild, GoesOnWhereItWasKilled) {
  const ScratchFolder folder;
  put_lines(folder / "in");
  build_dataset(small_build(folder / "in", folder / "whole"));
  for (const int kill_at : {1, 2, 5}) {
    DataBuild o = small_build(folder / "in", folder / fmt::format("x{}", kill_at));
    o.threads = 1;
    o.keep_bytes = 1;
    for (int start = 0; start < 2; ++start) {
      const pid_t child = fork();
      if (child == 0) {
        int calls = 0;
        o.after_batches = [&](const DataBuilt&) {
          if (++calls == kill_at) raise(SIGKILL);
        };
        build_dataset(o);
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(WIFSIGNALED(status));
      EXPECT_FALSE(std::filesystem::exists(o.out + ".bin"));
    }
    const DataBuilt built = build_dataset(o);
    EXPECT_GT(built.resumed, 0);
    EXPECT_LT(built.resumed, built.documents);
    EXPECT_EQ(built.documents, 311);
    EXPECT_EQ(files_of_dataset(o.out), files_of_dataset(folder / "whole")) << kill_at;
    EXPECT_FALSE(std::filesystem::exists(o.out + ".building"));
  }
}

TEST(DataBuild, StartsOverWhenTheInputsChanged) {
  const ScratchFolder folder;
  put_lines(folder / "in");
  DataBuild o = small_build(folder / "in", folder / "x");
  o.keep_bytes = 1;
  o.after_batches = [](const DataBuilt&) { throw Error("stopped"); };
  EXPECT_THROW(build_dataset(o), Error);
  EXPECT_TRUE(std::filesystem::exists(folder / "x.building"));
  put_file(folder / "in", "another text\n");
  o.after_batches = {};
  const DataBuilt built = build_dataset(o);
  EXPECT_TRUE(built.started_over);
  EXPECT_EQ(built.resumed, 0);
  EXPECT_EQ(built.documents, 1);
}

// Killed between moving the .bin and the .idx: the partial dataset may be replaced.
TEST(DataBuild, StartsOverAfterItWasKilledAtTheVeryEnd) {
  const ScratchFolder folder;
  put_lines(folder / "in");
  const DataBuild o = small_build(folder / "in", folder / "x");
  build_dataset(o);
  const std::string whole = files_of_dataset(o.out);
  std::filesystem::remove(folder / "x.idx");
  EXPECT_THROW(build_dataset(o), ConfigError);
  std::filesystem::create_directory(folder / "x.building");
  put_file(folder / "x.building/state.json",
           R"({"fingerprint":"", "note":"{}", "tokens":5, "documents":1, "finishing":true})");
  build_dataset(o);
  EXPECT_EQ(files_of_dataset(o.out), whole);
}

// Killed between any two changes of files at the end: the next start moves the remaining files and
// needs no --force.
TEST(DataBuild, IsCompletedAfterAKillAnywhereWhileItFinished) {
  const ScratchFolder folder;
  put_lines(folder / "in");
  build_dataset(small_build(folder / "in", folder / "whole"));
  const std::string whole = files_of_dataset(folder / "whole");
  int kills = 0;
  for (int kill_at = 1; kill_at < 20; ++kill_at) {
    DataBuild o = small_build(folder / "in", folder / fmt::format("x{}", kill_at));
    o.threads = 1;
    const pid_t child = fork();
    if (child == 0) {
      int calls = 0;
      o.while_finishing = [&] {
        if (++calls == kill_at) raise(SIGKILL);
      };
      build_dataset(o);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) break;
    ++kills;
    // The index is moved last: if it exists, all files do.
    if (std::filesystem::exists(o.out + ".idx")) {
      EXPECT_EQ(files_of_dataset(o.out), whole) << kill_at;
    }
    const DataBuilt built = build_dataset(o);
    EXPECT_EQ(built.documents, 311);
    EXPECT_EQ(built.files, 1);
    EXPECT_GT(built.bytes, 0);
    EXPECT_EQ(built.tokens, IndexedDataset(o.out).tokens());
    EXPECT_EQ(files_of_dataset(o.out), whole) << kill_at;
    EXPECT_FALSE(std::filesystem::exists(o.out + ".building"));
    EXPECT_THROW(build_dataset(o), ConfigError) << "it is complete: nothing to overwrite silently";
  }
  EXPECT_EQ(kills, 7);  // three files are written, three moved, one folder goes
}

TEST(DataBuild, ShowsHowFarItIsAndHowFast) {
  const ScratchFolder folder;
  put_lines(folder / "in");
  DataBuild o = small_build(folder / "in", folder / "x");
  o.threads = 1;
  o.show_every = std::chrono::milliseconds(0);
  testing::internal::CaptureStderr();
  build_dataset(o);
  const std::string shown = testing::internal::GetCapturedStderr();
  const std::regex line("file 1 of 1  311 documents  [0-9]+ tokens  [0-9.]+ MB  [0-9.]+ MB/s\n");
  EXPECT_TRUE(std::regex_search(shown, line)) << shown;
}

TEST(BenchTokenizer, EndsWithOneBelowWhatACoreShouldDo) {
  const ScratchFolder folder;
  put_lines(folder / "in");
  const auto bench = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"bench", "tokenizer", folder / "in", "--document", "line"};
    all.insert(all.end(), more.begin(), more.end());
    return run_weft(all);
  };
  EXPECT_EQ(bench({}).code, 0);
  EXPECT_EQ(bench({"--check", "1e-9"}).code, 0);
  const Outcome slow = bench({"--check", "1e9"});
  EXPECT_EQ(slow.code, 1);
  EXPECT_NE(slow.out.find("FAIL: below 1000000000 MB/s"), std::string::npos) << slow.out;
  EXPECT_LE(bench({"--check"}).code, 1);  // any speed
}

TEST(DataTokenizer, TrainsWhatBuildUses) {
  const ScratchFolder folder;
  put_lines(folder / "in");
  const auto train = [&](const std::string& out, const std::string& threads) {
    return run_data({"tokenizer", "--vocab", "300", "--document", "line", "--out", out, "--threads",
                     threads, folder / "in"});
  };
  EXPECT_NE(train(folder / "a.json", "1").find("300 tokens from"), std::string::npos);
  train(folder / "b.json", "3");
  EXPECT_EQ(get_file(folder / "a.json"), get_file(folder / "b.json"));
  EXPECT_THROW(train(folder / "a.json", "1"), ConfigError);  // exists
  run_data({"build", "--out", folder / "x", "--document", "line", "--tokenizer", folder / "a.json",
            folder / "in"});
  EXPECT_EQ(run_data({"inspect", folder / "x", "--document", "1"}),
            "line 2 of caf\u00e9s, 4 times\n");
  EXPECT_LT(IndexedDataset(folder / "x").tokens(), 311 * 15);
  EXPECT_THROW(run_data({"tokenizer", "--vocab", "200", "--out", folder / "c.json", folder / "in"}),
               ConfigError);
}

TEST(DataInspect, ShowsStatisticsAndDocuments) {
  const ScratchFolder folder;
  put_file(folder / "in", "one\ntwo three\n");
  run_data({"build", "--out", folder / "x", "--document", "line", folder / "in"});
  const std::string said = run_data({"inspect", folder / "x.bin"});
  EXPECT_NE(said.find("documents  2\n"), std::string::npos) << said;
  EXPECT_NE(said.find("tokens     14 as u16"), std::string::npos) << said;
  EXPECT_NE(said.find("document 1: two three"), std::string::npos) << said;
  EXPECT_EQ(run_data({"inspect", folder / "x", "--document", "1"}), "two three\n");
  EXPECT_EQ(run_data({"inspect", folder / "x", "--document", "0", "--ids"}), "111 110 101 256\n");
  EXPECT_THROW(run_data({"inspect", folder / "x", "--document", "2"}), ConfigError);
}

TEST(DataCheck, FindsTokensBeyondTheVocabulary) {
  const ScratchFolder folder;
  put_file(folder / "in", "text");
  run_data({"build", "--out", folder / "x", folder / "in"});
  EXPECT_NE(run_data({"check", folder / "x", "--vocab", "257"}).find("sound, 5 tokens"),
            std::string::npos);
  EXPECT_NE(run_data({"check", folder / "x"}).find("sound"), std::string::npos);
  EXPECT_THROW(run_data({"check", folder / "x", "--vocab", "256"}), ConfigError);
  EXPECT_THROW(run_data({"check", folder / "x", "--vocab", "0"}), CLI::Error);
}

TEST(DataHelp, HasAnExampleForEachCommand) {
  CLI::App app;
  add_data(app);
  CLI::App* data = app.get_subcommand("data");
  for (const char* name : {"build", "inspect", "check", "tokenizer", "encode"}) {
    EXPECT_NE(data->get_subcommand(name)->help().find("Example:"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace weft::test
