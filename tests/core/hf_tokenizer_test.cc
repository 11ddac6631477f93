#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer.h"
#include "core/data/tokenizer/regex.h"
#include "tests/support/paths.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

std::string golden(const std::string& name) {
  return in_project("tests/golden/tokenizers/" + name);
}

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden(""))) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".cases.json")) names.push_back(name.substr(0, name.size() - 11));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Ids and texts made by the `tokenizers` package (tests/e2e/tokenizer_golden.py).
TEST(HfTokenizer, AgreesWithThePackageOnStoredCases) {
  ASSERT_EQ(families().size(), 14u);
  for (const std::string& family : families()) {
    SCOPED_TRACE(family);
    const auto tokenizer = load_tokenizer(golden(family + ".json"));
    for (const Json& c : Json::parse(get_file(golden(family + ".cases.json")))) {
      const std::string text = c["text"];
      SCOPED_TRACE(c["text"].dump());
      EXPECT_EQ(tokenizer->encode(text), c["ids"].get<Ids>());
      EXPECT_EQ(tokenizer->decode(c["ids"].get<Ids>()), c["decoded"].get<std::string>());
      EXPECT_EQ(tokenizer->decode(c["odd"].get<Ids>()), c["odd_text"].get<std::string>());
      Ids special = tokenizer->encode_prompt(text);
      special.insert(special.end(), tokenizer->behind_text().begin(),
                     tokenizer->behind_text().end());
      EXPECT_EQ(special, c["special"].get<Ids>());
    }
  }
}

Json gpt2() { return Json::parse(get_file(golden("gpt2.json"))); }
std::unique_ptr<Tokenizer> made(const Json& json) { return parse_tokenizer(json.dump(), "t.json"); }
std::string refusal(const Json& json) {
  return message_of<ConfigError>([&] { made(json); });
}

TEST(HfTokenizer, StreamsTextThatEqualsTheWhole) {
  const std::string text = "Gr\u00f6\u00dfe \u65e5\u672c\u8a9e \U0001f642\n  x";
  // Normalizers and decoders of these families keep every character.
  for (const std::string family :
       {"gpt2", "roberta_like", "llama3", "qwen2", "mistral_legacy", "mistral", "gemma"}) {
    const auto tokenizer = load_tokenizer(golden(family + ".json"));
    StreamDecoder stream(*tokenizer);
    std::string out;
    for (const int32_t id : tokenizer->encode("a" + text)) {
      const std::string piece = stream.push(id);
      EXPECT_TRUE(is_utf8(piece)) << family;
      out += piece;
    }
    out += stream.finish();
    EXPECT_EQ(out.substr(out.find('a') + 1), text) << family;
  }
}

TEST(HfTokenizer, EndsDocumentsOnce) {
  const auto plain = made(gpt2());
  Ids ids = plain->encode("x y");
  ids.push_back(plain->end_of_document());
  EXPECT_EQ(plain->encode_document("x y"), ids);
  EXPECT_EQ(plain->decode(ids), "x y");
  const auto llama = load_tokenizer(golden("llama3.json"));
  EXPECT_EQ(llama->encode_document("").size(), 2u);  // <|begin_of_text|> <|end_of_text|>
  Json json = gpt2();
  json["added_tokens"] = Json::array();
  json["model"]["vocab"].erase("<|endoftext|>");
  EXPECT_NE(refusal(json).find("--eod TOKEN"), std::string::npos);
  EXPECT_EQ(parse_tokenizer(json.dump(), "t.json", "a")->end_of_document(),
            json["model"]["vocab"]["a"]);
  EXPECT_EQ(parse_tokenizer(json.dump(), "t", "", EndOfDocument::kOptional)->end_of_document(), -1);
}

TEST(HfTokenizer, ReadsTheByteTokenizersOwnFile) {
  const auto tokenizer = parse_tokenizer(ByteTokenizer().json(), "bytes");
  std::string text;
  for (uint32_t c = 1; c < 0x3000; c += 7) append_utf8(text, c);
  EXPECT_EQ(tokenizer->encode(text), ByteTokenizer().encode(text));
  EXPECT_EQ(tokenizer->vocab(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
}

TEST(HfTokenizer, RefusesWhatItDoesNotHaveByName) {
  const auto with = [](const char* part, const Json& value) {
    Json json = gpt2();
    json[part] = value;
    return refusal(json);
  };
  EXPECT_EQ(with("normalizer", {{"type", "ByteLevel"}}),
            "t.json: normalizer: the normalizer ByteLevel is not supported; supported are "
            "NFC, NFD, NFKC, NFKD, Prepend, Replace, Precompiled, Strip, StripAccents, Lowercase, "
            "Nmt, BertNormalizer and Sequence");
  EXPECT_NE(with("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}})
                .find("not a map of SentencePiece in base64"),
            std::string::npos);
  EXPECT_NE(with("pre_tokenizer", {{"type", "UnicodeScripts"}}).find("-tokenizer UnicodeScripts"),
            std::string::npos);
  EXPECT_NE(with("decoder", {{"type", "CTC"}}).find("decoder CTC"), std::string::npos);
  EXPECT_NE(with("post_processor", {{"type", "Pairs"}}).find("post-processor Pairs"),
            std::string::npos);
  EXPECT_NE(with("model", {{"type", "WordLevel"}}).find("model WordLevel"), std::string::npos);
  EXPECT_NE(with("model", {{"type", "Unigram"}}).find("Unigram behind the pre-tokenizer ByteLevel"),
            std::string::npos);
  EXPECT_NE(with("truncation", {{"max_length", 5}}).find("set it to null"), std::string::npos);
  EXPECT_NE(with("pre_tokenizer", 7).find("pre_tokenizer: an object is expected"),
            std::string::npos);
  Json json = gpt2();
  json["model"]["merges"].push_back("nothing here");
  EXPECT_NE(refusal(json).find("is not in the vocabulary"), std::string::npos);
  json = gpt2();
  json["model"]["vocab"]["far"] = 2000000000;
  EXPECT_NE(refusal(json).find("model.vocab.far: 2000000000 is outside"), std::string::npos);
  json = gpt2();
  json["added_tokens"][0]["id"] = 5;
  EXPECT_NE(refusal(json).find("has id 5 here, but by its place in the vocabulary 0"),
            std::string::npos);
  EXPECT_NE(
      message_of<ConfigError>([] { parse_tokenizer("{", "t.json"); }).find("t.json: not JSON"),
      std::string::npos);
  EXPECT_THROW(load_tokenizer("/nowhere/tokenizer.json"), ConfigError);
}

TEST(Regex, RefusesWhatWouldMeanSomethingElse) {
  EXPECT_EQ(pcre2_pattern(R"([^\s\p{L}]+|\S|\d)", "x").find("\\s"), std::string::npos);
  for (const char* pattern :
       {R"(\h)", R"([a[b]])", R"([a&&b])", R"(a{1,2}+)", R"(\b)", R"((?<name>a))", R"([[:alpha:]])",
        R"((*UTF)a)", R"(\1)", R"([\S])", "a\\"}) {
    EXPECT_NE(message_of<ConfigError>([&] { Regex(pattern, "here"); }).find("here: in the pattern"),
              std::string::npos)
        << pattern;
  }
  EXPECT_NE(message_of<ConfigError>([&] { Regex("(", "here"); }).find("cannot be compiled"),
            std::string::npos);
  const Regex endless(R"((a|b|ab)+[cd]\z)", "here");
  std::string text;
  for (int i = 0; i < 50; ++i) text += "ab";
  std::vector<Regex::Match> found;
  EXPECT_NE(message_of<ConfigError>([&] { endless.find_all(text, found); }).find("gives up"),
            std::string::npos);
}

Json unigram(const Json& vocabulary) {
  return {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocabulary}}}};
}

TEST(Unigram, TakesTheBestSumAndFusesUnknownCharacters) {
  const auto tokenizer = parse_tokenizer(
      unigram(Json::parse(R"([["<unk>",0],["a",-1],["b",-1],["c",-1],["ab",-1.5],["bc",-0.5]])"))
          .dump(),
      "t", "", EndOfDocument::kOptional);
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{1, 5}));  // -1.5, not -2.5
  EXPECT_EQ(tokenizer->encode("abxyb"), (Ids{4, 0, 2}));
  EXPECT_EQ(tokenizer->encode("x<unk>"), (Ids{0}));
  EXPECT_NE(refusal(unigram(Json::array())).find("an empty vocabulary"), std::string::npos);
  EXPECT_NE(refusal(unigram(Json::parse(R"([["a","b"]])"))).find("entry 0 is not [token, score]"),
            std::string::npos);
}

TEST(WordPiece, MakesOneUnknownTokenOfAWordThatCannotBeCut) {
  Json json = {{"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
               {"model",
                {{"type", "WordPiece"},
                 {"max_input_chars_per_word", 5},
                 {"vocab", {{"[UNK]", 0}, {"un", 1}, {"##a", 2}, {"##ab", 3}, {"u", 4}}}}}};
  const auto tokenizer = parse_tokenizer(json.dump(), "t", "", EndOfDocument::kOptional);
  EXPECT_EQ(tokenizer->encode("unaba u unb una!unabab"), (Ids{1, 3, 2, 4, 0, 1, 2, 0, 0}));
  json["model"]["vocab"].erase("[UNK]");
  EXPECT_NE(refusal(json).find("\"[UNK]\" is not in the vocabulary"), std::string::npos);
}

// Bytes changed and pieces cut out where the structure is: read, or refused with a message.
TEST(HfTokenizer, SurvivesDamagedFiles) {
  for (const char* family : {"qwen2", "mistral_legacy", "t5", "bert"}) {
    const std::string whole = get_file(golden(std::string(family) + ".json"));
    const size_t structure = std::min(whole.size(), whole.find("\"vocab\"") + 200);
    int read = 0, refused = 0;
    for (size_t at = 0; at < structure; at += 19) {
      std::string damaged = whole;
      damaged[at] = "0\"\xff}"[at / 19 % 4];
      if (at % 3 == 0) damaged.erase(at, 7);
      try {
        parse_tokenizer(damaged, "t.json")->encode("some text, \u65e5 <tool> 123");
        ++read;
      } catch (const ConfigError&) {
        ++refused;
      }
    }
    EXPECT_GT(read, 0);
    EXPECT_GT(refused, 0);
  }
}

}  // namespace
}  // namespace weft::test
