// The pass over a dataset that threads and ranks share gives equal findings for every division.
#include "core/data/dataset_pass.h"

#include <cstring>
#include <numeric>

#include "core/base/error.h"
#include "core/files/content_hash.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

constexpr int64_t kTokensOfBlock = kHashedBlock / 2;  // u16

// Two blocks and three tokens, in documents of 999,983 (prime: they cross the borders of blocks).
void write_large(const std::string& prefix) {
  IndexedDatasetWriter writer(prefix, TokenType::kU16);
  std::vector<int32_t> tokens(2 * kTokensOfBlock + 3, 7);
  for (size_t at = 0; at < tokens.size(); at += 999983) {
    writer.add_document(
        std::span(tokens).subspan(at, std::min<size_t>(999983, tokens.size() - at)));
  }
  writer.finish();
}

void put_token(const std::string& bin, int64_t index, uint16_t value) {
  std::string bytes = get_file(bin);
  std::memcpy(bytes.data() + 2 * index, &value, 2);
  put_file(bin, bytes);
}

// Findings of `parts` passes over their own blocks, combined.
PassFindings look_in_parts(const IndexedDataset& data, int64_t vocab, int64_t parts) {
  ThreadPool threads(2);
  PassFindings all;
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t blocks = pass_blocks(data);
    const PassFindings part =
        look_through(threads, data, vocab, blocks * p / parts, blocks * (p + 1) / parts);
    all.hashes.insert(all.hashes.end(), part.hashes.begin(), part.hashes.end());
    all.bad_byte = std::min(all.bad_byte, part.bad_byte);
  }
  return all;
}

TEST(DatasetPass, HashesAsTheFilesAloneHoweverItIsCut) {
  const ScratchFolder folder;
  write_large(folder / "x");
  const IndexedDataset data(folder / "x");
  ASSERT_EQ(pass_blocks(data), 1 + 3);
  for (const int64_t parts : {1, 2, 3, 7}) {
    const DatasetHashes hashes = conclude(data, 8, look_in_parts(data, 8, parts));
    EXPECT_EQ(hashes.bin, content_hash(folder / "x.bin"));
    EXPECT_EQ(hashes.idx, content_hash(folder / "x.idx"));
  }
}

TEST(DatasetPass, FindsTheFirstBadTokenHoweverItIsCut) {
  const ScratchFolder folder;
  write_large(folder / "x");
  put_token(folder / "x.bin", 2 * kTokensOfBlock + 2, 9);  // the very last
  // Both sides of a block's border, from the end, so that each is the first bad token in its turn.
  for (const int64_t at :
       {2 * kTokensOfBlock, 2 * kTokensOfBlock - 1, kTokensOfBlock, int64_t{0}}) {
    put_token(folder / "x.bin", at, 8);
    const IndexedDataset data(folder / "x");
    for (const int64_t parts : {1, 3}) {
      const PassFindings found = look_in_parts(data, 8, parts);
      EXPECT_EQ(found.bad_byte, 2 * at);
      const std::string message = message_of<ConfigError>([&] { conclude(data, 8, found); });
      EXPECT_NE(message.find(fmt::format("byte {}: token 8 in document {}", 2 * at, at / 999983)),
                std::string::npos)
          << message;
    }
    EXPECT_EQ(look_in_parts(data, 10, 3).bad_byte, PassFindings::kNone);
  }
}

// Sequences with gaps between them, one across a border of blocks: bytes in the gaps are no tokens.
TEST(DatasetPass, LooksAtSequencesOnlyWhereTheyHaveGaps) {
  const ScratchFolder folder;
  std::vector<uint16_t> tokens(kTokensOfBlock + 100, 60000);
  const std::vector<std::pair<int64_t, int32_t>> sequences = {
      {3, 5}, {20, 0}, {kTokensOfBlock - 2, 4}, {kTokensOfBlock + 50, 10}};
  std::string idx("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08", 18);
  const auto put = [&](auto value) {
    idx.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(uint64_t{4}), put(uint64_t{5});
  for (const auto& [first, count] : sequences) {
    put(count);
    std::fill_n(tokens.begin() + first, count, uint16_t{1});
  }
  for (const auto& [first, count] : sequences) put(2 * first);
  for (int64_t d = 0; d <= 4; ++d) put(d);
  put_file(folder / "x.idx", idx);
  const auto write = [&] {
    put_file(folder / "x.bin",
             std::string(reinterpret_cast<char*>(tokens.data()), 2 * tokens.size()));
  };
  write();
  EXPECT_EQ(look_in_parts(IndexedDataset(folder / "x"), 2, 1).bad_byte, PassFindings::kNone);
  for (const int64_t at :
       {kTokensOfBlock + 59, kTokensOfBlock + 1, kTokensOfBlock - 1, int64_t{7}}) {
    tokens[static_cast<size_t>(at)] = 2;
    write();
    for (const int64_t parts : {1, 3}) {
      EXPECT_EQ(look_in_parts(IndexedDataset(folder / "x"), 2, parts).bad_byte, 2 * at);
    }
  }
}

TEST(ContentHash, ChangesWithEveryByteAndWithTheSize) {
  const ScratchFolder folder;
  const auto hash = [&](const std::string& content) {
    put_file(folder / "x", content);
    return content_hash(folder / "x");
  };
  std::string large(2 * kHashedBlock + 1, 'a');
  const std::string before = hash(large);
  EXPECT_EQ(before.size(), 32u);
  EXPECT_EQ(before, hash(large));
  for (const size_t at : {size_t{0}, size_t{kHashedBlock - 1}, size_t{kHashedBlock},
                          large.size() / 3, large.size() - 1}) {
    std::string other = large;
    other[at] ^= 1;
    EXPECT_NE(hash(other), before) << at;
  }
  EXPECT_NE(hash(large + "a"), before);
  EXPECT_NE(hash(""), hash(std::string(1, '\0')));
}

}  // namespace
}  // namespace weft::test
