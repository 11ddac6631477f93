#include "core/data/tokenizer.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

TEST(ByteTokenizer, KeepsEveryByte) {
  const ByteTokenizer tokenizer;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const auto ids = tokenizer.encode(all);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[static_cast<size_t>(byte)], byte);
  EXPECT_EQ(tokenizer.decode(ids), all);
  EXPECT_EQ(tokenizer.vocab(), 257);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{'a', tokenizer.end_of_document(), 'b'}), "ab");
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{257}), Error);
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{-1}), Error);
}

TEST(ByteTokenizer, DescribesItselfForOtherPrograms) {
  const auto json = nlohmann::json::parse(ByteTokenizer().json());
  const auto& vocab = json["model"]["vocab"];
  EXPECT_EQ(vocab.size(), 256u);
  // As in GPT-2's table: space is U+0120, line feed U+010A, soft hyphen the last one, U+0143.
  EXPECT_EQ(vocab["A"], 'A');
  EXPECT_EQ(vocab["\u0120"], ' ');
  EXPECT_EQ(vocab["\u010A"], '\n');
  EXPECT_EQ(vocab["\u0143"], 0xAD);
  EXPECT_EQ(vocab["\u00FF"], 0xFF);
  EXPECT_EQ(json["added_tokens"][0]["id"], 256);
}

TEST(StreamDecoder, NeverSplitsACharacter) {
  const ByteTokenizer tokenizer;
  const std::string text = "a\u00e9\u20ac\U0001F600z";  // one to four bytes
  StreamDecoder decoder(tokenizer);
  std::string out;
  for (const int32_t id : tokenizer.encode(text)) {
    const std::string piece = decoder.push(id);
    EXPECT_TRUE(is_utf8(piece));
    out += piece;
  }
  EXPECT_EQ(out + decoder.finish(), text);
}

TEST(StreamDecoder, ReplacesWhatIsNoCharacter) {
  const ByteTokenizer tokenizer;
  StreamDecoder decoder(tokenizer);
  std::string out;
  for (const int32_t id : {0xff, 0xc3, 0x28, 0xe2, 0x82}) out += decoder.push(id);
  out += decoder.finish();
  EXPECT_EQ(out, "\uFFFD\uFFFD(\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(Utf8, AcceptsWhatTheStandardAccepts) {
  for (const char* good : {"", "abc", "\u00e9", "\u0800", "\uffff", "\U00010000", "\U0010ffff"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  // A lone tail, a cut character, overlong forms, a surrogate, beyond U+10FFFF, five bytes.
  for (const char* bad :
       {"\x80", "\xc3", "a\xe2\x82", "\xc0\x80", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
  for (const uint32_t c : {0x41u, 0xe9u, 0x20acu, 0x1F600u}) {
    std::string out;
    append_utf8(out, c);
    EXPECT_EQ(utf8_length(out), std::ssize(out));
  }
}

}  // namespace
}  // namespace weft::test
