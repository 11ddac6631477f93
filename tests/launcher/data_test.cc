#include "launcher/data.h"

#include <zlib.h>

#include "core/error.h"
#include "core/indexed_dataset.h"
#include "core/tokenizer.h"
#include "launcher/data_build.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

// Runs `weft data ...` inside this process and returns what it prints.
std::string run(std::vector<std::string> arguments) {
  CLI::App app;
  add_data(app);
  arguments.insert(arguments.begin(), "data");
  std::reverse(arguments.begin(), arguments.end());  // what CLI11 expects of a vector
  testing::internal::CaptureStdout();
  try {
    app.parse(arguments);
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  return testing::internal::GetCapturedStdout();
}

std::vector<std::string> documents_of(const std::string& prefix) {
  const IndexedDataset data(prefix);
  std::vector<std::string> texts;
  for (int64_t d = 0; d < data.documents(); ++d) {
    const auto ids = data.read(d);
    EXPECT_EQ(ids.back(), ByteTokenizer::kEndOfDocument);
    texts.push_back(ByteTokenizer().decode(ids));
  }
  return texts;
}

void put_gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

using Texts = std::vector<std::string>;

TEST(DataBuild, MakesADocumentOfEveryFile) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "in");
  put_file(folder / "in/b.txt", "second\n");
  put_file(folder / "in/a.txt", "first\n");
  put_gzip(folder / "in/c.gz", "third, compressed\n");
  put_file(folder / "in/d.bin", "\xff\xfe not text");
  put_file(folder / "in/e.txt", " \n");
  std::filesystem::create_symlink(folder / "in/a.txt", folder / "in/link.txt");
  const std::string said = run({"build", "--out", folder / "made/x", folder / "in"});
  EXPECT_EQ(documents_of(folder / "made/x"), (Texts{"first\n", "second\n", "third, compressed\n"}));
  EXPECT_NE(said.find("34 tokens in 3 documents from 5 files"), std::string::npos) << said;
  EXPECT_NE(said.find("skipped 1 that are not UTF-8"), std::string::npos) << said;
  EXPECT_NE(said.find("skipped 1 without text"), std::string::npos) << said;
  EXPECT_EQ(IndexedDataset(folder / "made/x").type(), TokenType::kU16);
  EXPECT_EQ(get_file(folder / "made/x.tokenizer.json"), ByteTokenizer().json());
}

TEST(DataBuild, SplitsFilesByLineAndParagraph) {
  const ScratchFolder folder;
  put_file(folder / "in", "one\r\ntwo\n\n \nthree");
  run({"build", "--out", folder / "line", "--document", "line", folder / "in"});
  EXPECT_EQ(documents_of(folder / "line"), (Texts{"one", "two", "three"}));
  run({"build", "--out", folder / "paragraph", "--document", "paragraph", folder / "in"});
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
  run({"build", "--out", folder / "line", "--document", "line", folder / "in.gz"});
  EXPECT_EQ(documents_of(folder / "line"), lines);
  run({"build", "--out", folder / "file", folder / "in.gz"});
  EXPECT_EQ(documents_of(folder / "file"), Texts{text});
}

TEST(DataBuild, ReadsJsonLines) {
  const ScratchFolder folder;
  put_file(folder / "in", "{\"id\": 1, \"body\": \"a\\nb\"}\n\n{\"body\": \"\\u20ac\"}\n");
  run({"build", "--out", folder / "x", "--jsonl", "--key", "body", folder / "in"});
  EXPECT_EQ(documents_of(folder / "x"), (Texts{"a\nb", "\u20ac"}));
  const auto message = [&](const std::string& content) {
    put_file(folder / "bad", content);
    return message_of<ConfigError>([&] {
      run({"build", "--out", folder / "y", "--jsonl", folder / "bad"});
    });
  };
  EXPECT_NE(message("{\"text\": \"x\"}\n{\"txt\": \"x\"}\n")
                .find("bad:2: no text under the key \"text\"; "
                      "it has texts under [txt]"),
            std::string::npos);
  EXPECT_NE(message("{\"text\": \"x\"\n").find("bad:1: not a JSON object"), std::string::npos);
  EXPECT_NE(message("[1]\n").find("bad:1: not a JSON object"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "y.bin"));
}

TEST(DataBuild, StripsManualPages) {
  const ScratchFolder folder;
  put_gzip(folder / "x.1.gz", ".TH X 1\n.SH NAME\nx \\- a \\fBprogram\\fR\n");
  put_file(folder / "y.1", ".so man1/x.1\n");
  run({"build", "--out", folder / "x", "--strip", "roff", folder / "x.1.gz", folder / "y.1"});
  EXPECT_EQ(documents_of(folder / "x"), Texts{"NAME\nx - a program\n"});
}

TEST(DataBuild, StopsAfterEnoughText) {
  const ScratchFolder folder;
  put_file(folder / "in", "aaaa\nbbbb\ncccc\ndddd\n");
  run({"build", "--out", folder / "x", "--document", "line", "--max-bytes", "5", folder / "in"});
  EXPECT_EQ(documents_of(folder / "x"), (Texts{"aaaa", "bbbb"}));
  run({"build", "--out", folder / "y", "--max-bytes", "1KB", folder / "in"});
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
    run({"build", "--out", folder / out, "--shuffle", "3", folder / "in"});
  run({"build", "--out", folder / "z", "--shuffle", "4", folder / "in"});
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
  EXPECT_THROW(run({"build", "--out", folder / "x", folder / "absent"}), ConfigError);
  EXPECT_THROW(run({"build", "--out", folder / "x", folder / "empty"}), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(folder / "x.bin"));
  EXPECT_THROW(run({"build", "--out", folder / "x", "--document", "page", folder / "in"}),
               CLI::Error);
  EXPECT_THROW(run({"build", "--out", folder / "x", "--jsonl", "--strip", "roff", folder / "in"}),
               ConfigError);
  run({"build", "--out", folder / "x", folder / "in"});
  const std::string message = message_of<ConfigError>([&] {
    run({"build", "--out", folder / "x", folder / "in"});
  });
  EXPECT_NE(message.find("--force"), std::string::npos);
  put_file(folder / "in", "other");
  run({"build", "--out", folder / "x", "--force", folder / "in"});
  EXPECT_EQ(documents_of(folder / "x"), Texts{"other"});
  std::string damaged;
  put_gzip(folder / "g.gz", std::string(1000, 'x'));
  damaged = get_file(folder / "g.gz");
  put_file(folder / "g.gz", damaged.substr(0, damaged.size() / 2));
  EXPECT_THROW(run({"build", "--out", folder / "g", folder / "g.gz"}), ConfigError);
}

TEST(DataInspect, ShowsStatisticsAndDocuments) {
  const ScratchFolder folder;
  put_file(folder / "in", "one\ntwo three\n");
  run({"build", "--out", folder / "x", "--document", "line", folder / "in"});
  const std::string said = run({"inspect", folder / "x.bin"});
  EXPECT_NE(said.find("documents  2\n"), std::string::npos) << said;
  EXPECT_NE(said.find("tokens     14 as u16"), std::string::npos) << said;
  EXPECT_NE(said.find("document 1: two three"), std::string::npos) << said;
  EXPECT_EQ(run({"inspect", folder / "x", "--document", "1"}), "two three\n");
  EXPECT_EQ(run({"inspect", folder / "x", "--document", "0", "--ids"}), "111 110 101 256\n");
  EXPECT_THROW(run({"inspect", folder / "x", "--document", "2"}), ConfigError);
}

TEST(DataCheck, FindsTokensBeyondTheVocabulary) {
  const ScratchFolder folder;
  put_file(folder / "in", "text");
  run({"build", "--out", folder / "x", folder / "in"});
  EXPECT_NE(run({"check", folder / "x", "--vocab", "257"}).find("sound, 5 tokens"),
            std::string::npos);
  EXPECT_NE(run({"check", folder / "x"}).find("sound"), std::string::npos);
  EXPECT_THROW(run({"check", folder / "x", "--vocab", "256"}), ConfigError);
  EXPECT_THROW(run({"check", folder / "x", "--vocab", "0"}), CLI::Error);
}

TEST(DataHelp, HasAnExampleForEachCommand) {
  CLI::App app;
  add_data(app);
  CLI::App* data = app.get_subcommand("data");
  for (const char* name : {"build", "inspect", "check"}) {
    EXPECT_NE(data->get_subcommand(name)->help().find("Example:"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace weft::test
