#include "core/data/indexed_dataset.h"

#include <cstring>
#include <random>

#include "core/base/error.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// An index written by hand, field by field.
struct Index {
  std::string magic{"MMIDIDX\0\0", 9};
  uint64_t version = 1;
  uint8_t code = 8;
  std::vector<int32_t> lengths;
  std::vector<int64_t> offsets, documents;

  std::string bytes() const {
    std::string out = magic;
    append(out, version);
    append(out, code);
    append(out, static_cast<uint64_t>(lengths.size()));
    append(out, static_cast<uint64_t>(documents.size()));
    for (const auto x : lengths) append(out, x);
    for (const auto x : offsets) append(out, x);
    for (const auto x : documents) append(out, x);
    return out;
  }
};

// Two documents of u16 tokens: {1, 2, 300} and {4, 5 | 6}, the second in two sequences.
Index sound() { return {.lengths = {3, 2, 1}, .offsets = {0, 6, 10}, .documents = {0, 1, 3}}; }
const std::string kTokens("\1\0\2\0\x2c\1\4\0\5\0\6\0", 12);

struct Files {
  ScratchFolder folder;
  std::string put(const Index& index, const std::string& bin = kTokens) {
    put_file(folder / "x.idx", index.bytes());
    put_file(folder / "x.bin", bin);
    return folder / "x";
  }
  void expect_refused(const Index& index, const std::string& reason,
                      const std::string& bin = kTokens) {
    const std::string prefix = put(index, bin);
    const std::string message = message_of<ConfigError>([&] { IndexedDataset{prefix}; });
    EXPECT_NE(message.find("x.idx: byte"), std::string::npos) << message;
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  }
};

TEST(IndexedDataset, WritesTheFormatByteForByte) {
  const ScratchFolder folder;
  IndexedDatasetWriter writer(folder / "x", TokenType::kU16);
  writer.add_document(std::vector<int32_t>{1, 2, 300});
  writer.add_sequence(std::vector<int32_t>{4, 5});
  writer.add_sequence(std::vector<int32_t>{6});
  writer.end_document();
  EXPECT_FALSE(std::filesystem::exists(folder / "x.bin"));
  writer.finish();

  const unsigned char expected[] = {
      'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0,           // magic
      1,   0,   0,   0,   0,   0,   0,   0,              // version
      8,                                                 // u16
      3,   0,   0,   0,   0,   0,   0,   0,              // sequences
      3,   0,   0,   0,   0,   0,   0,   0,              // documents + 1
      3,   0,   0,   0,   2,   0,   0,   0, 1, 0, 0, 0,  // lengths
      0,   0,   0,   0,   0,   0,   0,   0, 6, 0, 0, 0,
      0,   0,   0,   0,   10,  0,   0,   0, 0, 0, 0, 0,  // offsets
      0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0,
      0,   0,   0,   0,   3,   0,   0,   0, 0, 0, 0, 0,  // documents
  };
  EXPECT_EQ(get_file(folder / "x.idx"),
            std::string(reinterpret_cast<const char*>(expected), sizeof expected));
  EXPECT_EQ(get_file(folder / "x.bin"), kTokens);
}

TEST(IndexedDataset, ReadsDocumentsInPieces) {
  Files files;
  const IndexedDataset data(files.put(sound()));
  EXPECT_EQ(data.documents(), 2);
  EXPECT_EQ(data.sequences(), 3);
  EXPECT_EQ(data.tokens(), 6);
  EXPECT_EQ(data.unused_bytes(), 0);
  EXPECT_EQ(data.read(0), (std::vector<int32_t>{1, 2, 300}));
  EXPECT_EQ(data.read(1), (std::vector<int32_t>{4, 5, 6}));
  int32_t two[2];
  data.read(1, 1, 2, two);
  EXPECT_EQ(two[0], 5);
  EXPECT_EQ(two[1], 6);
  EXPECT_THROW(data.read(1, 2, 2, two), Error);
  EXPECT_THROW(data.document_tokens(2), Error);
}

TEST(IndexedDataset, IsFoundByPrefixAndByEitherFile) {
  Files files;
  files.put(sound());
  for (const char* name : {"x", "x.bin", "x.idx"}) {
    EXPECT_EQ(IndexedDataset(files.folder / name).tokens(), 6) << name;
  }
  std::filesystem::remove(files.folder / "x.bin");
  EXPECT_THROW(IndexedDataset(files.folder / "x"), ConfigError);
}

TEST(IndexedDataset, AllowsGapsAndEmptyDocuments) {
  Files files;
  Index index = sound();
  index.lengths = {0, 2, 1};
  index.offsets = {0, 2, 10};  // token 1 and the two at 6 belong to no sequence
  index.documents = {0, 1, 1, 3, 3};
  const IndexedDataset data(files.put(index));
  EXPECT_EQ(data.unused_bytes(), 6);
  EXPECT_EQ(data.read(2), (std::vector<int32_t>{2, 300, 6}));
  EXPECT_TRUE(data.read(3).empty());
  EXPECT_EQ(data.find_token_beyond(300)->document, 2);
  Index nothing = sound();
  nothing.lengths = {};
  nothing.offsets = {};
  nothing.documents = {0};
  EXPECT_EQ(IndexedDataset(files.put(nothing, "")).documents(), 0);
}

template <class T>
class IndexedDatasetTypes : public testing::Test {};
template <class T, TokenType kType>
struct Case {
  using Token = T;
  static constexpr TokenType type = kType;
};
using Cases = testing::Types<Case<uint8_t, TokenType::kU8>, Case<int8_t, TokenType::kI8>,
                             Case<int16_t, TokenType::kI16>, Case<int32_t, TokenType::kI32>,
                             Case<int64_t, TokenType::kI64>, Case<uint16_t, TokenType::kU16>>;
TYPED_TEST_SUITE(IndexedDatasetTypes, Cases);

TYPED_TEST(IndexedDatasetTypes, KeepTheirTokens) {
  using T = typename TypeParam::Token;
  const ScratchFolder folder;
  std::vector<int32_t> tokens = {0, 1, 127, 7};
  if (sizeof(T) == 4) tokens.push_back(2147483647);
  IndexedDatasetWriter writer(folder / "x", TypeParam::type);
  writer.add_document(tokens);
  writer.finish();
  EXPECT_EQ(std::filesystem::file_size(folder / "x.bin"), tokens.size() * sizeof(T));
  EXPECT_EQ(IndexedDataset(folder / "x").read(0), tokens);
}

// 4096 tokens are tested at a time: a bad one on both sides of that border, first and last.
TYPED_TEST(IndexedDatasetTypes, FindTheFirstTokenBeyondTheVocabulary) {
  using T = typename TypeParam::Token;
  const ScratchFolder folder;
  for (const size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{9000}}) {
    std::vector<T> tokens(9001, T{99});
    tokens[at] = T{100};
    tokens.back() = std::is_signed_v<T> ? static_cast<T>(-1) : T{101};
    Index index;
    index.code = static_cast<uint8_t>(TypeParam::type);
    index.lengths = {5000, 4001};
    index.offsets = {0, static_cast<int64_t>(5000 * sizeof(T))};
    index.documents = {0, 1, 2};
    put_file(folder / "x.idx", index.bytes());
    put_file(folder / "x.bin",
             std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T)));
    const IndexedDataset data(folder / "x");
    const auto bad = data.find_token_beyond(100);
    ASSERT_TRUE(bad.has_value());
    EXPECT_EQ(bad->byte, static_cast<int64_t>(at * sizeof(T)));
    EXPECT_EQ(bad->document, at < 5000 ? 0 : 1);
    EXPECT_EQ(bad->value, static_cast<int64_t>(tokens[at]));
    // Negative ids are never in a vocabulary, however large; unsigned ones then always are.
    EXPECT_EQ(data.find_token_beyond(int64_t{1} << 40).has_value(), std::is_signed_v<T>);
    const std::string message = message_of<ConfigError>([&] { data.check_tokens(100); });
    EXPECT_NE(message.find(fmt::format("x.bin: byte {}", at * sizeof(T))), std::string::npos);
  }
}

TEST(IndexedDatasetRefuses, EveryTruncation) {
  Files files;
  const std::string prefix = files.put(sound());
  const std::string whole = sound().bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    put_file(prefix + ".idx", whole.substr(0, size));
    EXPECT_THROW(IndexedDataset{prefix}, ConfigError) << size;
  }
  put_file(prefix + ".idx", whole + "x");
  EXPECT_THROW(IndexedDataset{prefix}, ConfigError);
  put_file(prefix + ".idx", whole);
  for (size_t size = 0; size < kTokens.size(); ++size) {
    put_file(prefix + ".bin", kTokens.substr(0, size));
    EXPECT_THROW(IndexedDataset{prefix}, ConfigError) << size;
  }
}

TEST(IndexedDatasetRefuses, EveryDamagedByteOrReadsItSoundly) {
  Files files;
  const std::string prefix = files.put(sound());
  const std::string whole = sound().bytes();
  for (size_t i = 0; i < 3 * whole.size(); ++i) {  // the lowest bit, the highest, all of a byte
    std::string damaged = whole;
    const int masks[] = {0x01, 0x80, 0xff};
    damaged[i / 3] = static_cast<char>(damaged[i / 3] ^ masks[i % 3]);
    put_file(prefix + ".idx", damaged);
    try {
      const IndexedDataset data(prefix);
      int64_t tokens = 0;
      for (int64_t d = 0; d < data.documents(); ++d) tokens += std::ssize(data.read(d));
      EXPECT_EQ(tokens, data.tokens());
      EXPECT_LE(tokens, 12);
    } catch (const ConfigError&) {
    }
  }
}

TEST(IndexedDatasetRefuses, EveryKindOfDamageByName) {
  Files files;
  const auto damaged = [](auto&& change) {
    Index index = sound();
    change(index);
    return index;
  };
  files.expect_refused(damaged([](Index& i) { i.magic[3] = 'X'; }), "byte 0: not a Megatron index");
  files.expect_refused(damaged([](Index& i) { i.version = 2; }), "byte 9: version 2");
  for (const uint8_t code : {0, 6, 7, 9, 255}) {
    files.expect_refused(damaged([&](Index& i) { i.code = code; }),
                         fmt::format("byte 17: type code {}", code));
  }
  files.expect_refused(damaged([](Index& i) { i.documents = {}; }), "byte 26: no document index");
  files.expect_refused(damaged([](Index& i) { i.lengths[1] = -2; }), "byte 38: sequence 1 has");
  files.expect_refused(damaged([](Index& i) { i.lengths[2] = 2; }), "byte 62: sequence 2");
  files.expect_refused(damaged([](Index& i) { i.offsets[1] = 4; }), "byte 54: sequence 1");
  files.expect_refused(damaged([](Index& i) { i.offsets[1] = 7; }), "not behind");
  files.expect_refused(damaged([](Index& i) { i.offsets[0] = -2; }), "byte 46: sequence 0");
  files.expect_refused(damaged([](Index& i) { i.offsets[2] = INT64_MAX - 1; }), "truncated?");
  files.expect_refused(damaged([](Index& i) { i.documents[0] = 1; }), "byte 70: document entry 0");
  files.expect_refused(damaged([](Index& i) { i.documents[1] = 4; }), "byte 78: document entry 1");
  files.expect_refused(damaged([](Index& i) { i.documents[1] = -1; }), "byte 78: document entry 1");
  files.expect_refused(damaged([](Index& i) { i.documents[2] = 2; }), "byte 86: document entry 2");
}

TEST(IndexedDatasetRefuses, CountsThatOverflow) {
  Files files;
  std::string bytes = sound().bytes();
  // 12 n + 8 m wraps around to the right size: n = 2^62 + 3.
  const uint64_t sequences = (uint64_t{1} << 62) + 3;
  std::memcpy(bytes.data() + 18, &sequences, 8);
  put_file(files.folder / "x.idx", bytes);
  put_file(files.folder / "x.bin", kTokens);
  EXPECT_THROW(IndexedDataset{files.folder / "x"}, ConfigError);
}

TEST(IndexedDatasetWriter, RefusesTokensThatDoNotFitAndLeavesNothing) {
  const ScratchFolder folder;
  {
    IndexedDatasetWriter writer(folder / "x", TokenType::kU16);
    EXPECT_THROW(writer.add_document(std::vector<int32_t>{65536}), Error);
    EXPECT_THROW(writer.add_document(std::vector<int32_t>{-1}), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(token_type_for(65536), TokenType::kU16);
  EXPECT_EQ(token_type_for(65537), TokenType::kI32);
}

}  // namespace
}  // namespace weft::test
