#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/base/base64.h"
#include "core/base/error.h"
#include "core/data/tokenizer.h"
#include "tests/support/paths.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

struct StoredCases {
  std::string name, model;
  std::string pattern;  // of rank files
  Json cases;
};

// Made by tests/e2e/sentencepiece_fuzz.py --store with the sentencepiece and tiktoken packages.
std::vector<StoredCases> stored(const std::string& folder, const std::string& ending) {
  std::vector<StoredCases> all;
  const std::string top = in_project("tests/golden/" + folder);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".cases.json")) continue;
    const Json json = Json::parse(get_file(path));
    const Json& options = json["options"];
    all.push_back({path.substr(top.size()), path.substr(0, path.size() - 11) + ending,
                   options.empty() ? "" : options[1].get<std::string>(), json["cases"]});
  }
  return all;
}

void expect_cases(const StoredCases& family, const Tokenizer& tokenizer) {
  SCOPED_TRACE(family.name);
  for (const Json& c : family.cases) {
    SCOPED_TRACE(c["text"].dump());
    EXPECT_EQ(tokenizer.encode(c["text"].get<std::string>()), c["ids"].get<Ids>());
    EXPECT_EQ(tokenizer.decode(c["ids"].get<Ids>()), c["decoded"].get<std::string>());
  }
}

// The file and the tokenizer.json that is kept beside datasets and in checkpoints.
void expect_all(const std::vector<StoredCases>& families) {
  for (const StoredCases& family : families) {
    const auto tokenizer =
        load_tokenizer(family.model, "", EndOfDocument::kOptional, family.pattern);
    expect_cases(family, *tokenizer);
    const auto kept = parse_tokenizer(tokenizer->json(), "kept", "", EndOfDocument::kOptional);
    expect_cases(family, *kept);
    EXPECT_EQ(kept->end_of_document(), tokenizer->end_of_document());
    EXPECT_EQ(kept->json(), tokenizer->json());
  }
}

TEST(SentencePiece, AgreesWithThePackageOnStoredCases) {
  const auto families = stored("sentencepiece", ".model");
  ASSERT_EQ(families.size(), 7u);
  expect_all(families);
}

TEST(Tiktoken, AgreesWithThePackageOnStoredCases) {
  const auto families = stored("tiktoken", ".tiktoken");
  ASSERT_EQ(families.size(), 5u);
  expect_all(families);
}

std::string model_file(const std::string& name) {
  return get_file(in_project("tests/golden/sentencepiece/" + name + ".model"));
}

std::string refusal(const std::string& content, const std::string& pattern = "") {
  return message_of<ConfigError>(
      [&] { parse_tokenizer(content, "t", "", EndOfDocument::kOptional, pattern); });
}

TEST(SentencePiece, EndsDocumentsAndStreams) {
  const auto tokenizer = parse_tokenizer(model_file("llama2"), "t");
  const Ids ids = tokenizer->encode_document("na\u00efve \U0001f642");
  EXPECT_EQ(ids.back(), 2);  // </s>
  StreamDecoder stream(*tokenizer);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  EXPECT_EQ(text + stream.finish(), " na\u00efve \U0001f642");
  EXPECT_EQ(tokenizer->decode(ids), "na\u00efve \U0001f642");
  EXPECT_EQ(parse_tokenizer(model_file("llama2"), "t", "<s>")->end_of_document(), 1);
  EXPECT_NE(message_of<ConfigError>([] {
              parse_tokenizer(model_file("bpe"), "t", "<nope>");
            }).find("no piece \"<nope>\""),
            std::string::npos);
}

// Cut anywhere, and with bytes changed: read, or refused with a message.
TEST(SentencePiece, SurvivesDamagedFiles) {
  const std::string whole = model_file("unigram_symbols");
  int read = 0, refused = 0;
  for (size_t at = 0; at < whole.size(); at += 23) {
    for (const bool cut : {true, false}) {
      std::string damaged = cut ? whole.substr(0, at) : whole;
      if (!cut) damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      try {
        parse_tokenizer(damaged, "t", "", EndOfDocument::kOptional)->encode("some <tool> \u65e5");
        ++read;
      } catch (const ConfigError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

TEST(SentencePiece, RefusesWhatItDoesNotHaveByName) {
  const std::string pieces = model_file("bpe");
  // Fields that stand later count: trainer_spec { model_type: WORD }.
  EXPECT_NE(refusal(pieces + std::string("\x12\x02\x18\x03", 4)).find("supported are unigram"),
            std::string::npos);
  // denormalizer_spec { precompiled_charsmap: "x" }
  EXPECT_NE(refusal(pieces + std::string("\x2a\x03\x12\x01x", 5)).find("denormalizer"),
            std::string::npos);
  EXPECT_NE(refusal(pieces + "\x0a\x7f").find("a field of 127 bytes, where 0 are left"),
            std::string::npos);
  EXPECT_NE(refusal(pieces, "gpt2").find("--pattern is for rank files"), std::string::npos);
}

std::string byte_ranks() {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte)
    lines += fmt::format("{} {}\n", to_base64(std::string(1, static_cast<char>(byte))), byte);
  return lines;
}

TEST(Tiktoken, RefusesWhatIsNoRankFile) {
  EXPECT_NE(refusal(byte_ranks()).find("give --pattern gpt2"), std::string::npos);
  EXPECT_EQ(parse_tokenizer(byte_ranks(), "t", "", EndOfDocument::kOptional, "gpt2")->vocab(), 256);
  EXPECT_NE(refusal("AA== 0\n", "gpt2").find("byte 1 has no rank"), std::string::npos);
  EXPECT_NE(refusal(byte_ranks() + "YWI= 7\n", "gpt2").find("rank 7 is that of line 8 too"),
            std::string::npos);
  EXPECT_NE(refusal(byte_ranks() + "YQ== 256\n", "gpt2").find("twice"), std::string::npos);
  EXPECT_NE(refusal(byte_ranks() + "YWI=256\n", "gpt2").find("line 257: not a token"),
            std::string::npos);
  EXPECT_NE(refusal(byte_ranks() + "YWI= 99999999\n", "gpt2").find("in a file of so few tokens"),
            std::string::npos);
  EXPECT_NE(refusal(byte_ranks(), "(").find("cannot be compiled"), std::string::npos);
}

TEST(Base64, ReadsWhatItWritesAndNothingElse) {
  std::string bytes;
  for (int size = 0; size < 20; ++size) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    bytes += static_cast<char>(size * 41);
  }
  for (const char* bad : {"A", "AB=", "A===", "AB==", "A=BC", "AA=A", "A*BC", "AAA"})
    EXPECT_FALSE(from_base64(bad).has_value()) << bad;
}

}  // namespace
}  // namespace weft::test
