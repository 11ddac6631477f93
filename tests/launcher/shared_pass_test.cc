// Ranks share the pass over a dataset, with equal results.
#include "launcher/eval/shared_pass.h"

#include "core/base/error.h"
#include "core/files/content_hash.h"
#include "parallel/comm/thread_comm.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

// Three blocks of the .bin and one of the .idx: fewer than ranks, not a multiple of ranks, one
// rank.
TEST(SharedPass, GivesEveryRankTheHashesOfTheFiles) {
  const ScratchFolder folder;
  {
    IndexedDatasetWriter writer(folder / "x", TokenType::kI32);
    const std::vector<int32_t> tokens((2 * kHashedBlock + 40) / 4, 5);
    writer.add_document(tokens);
    writer.finish();
  }
  const IndexedDataset data(folder / "x");
  ASSERT_EQ(pass_blocks(data), 4);
  for (const int size : {1, 3, 5}) {
    run_ranks(size, [&](ThreadComm& ranks, Exec& exec) {
      const DatasetHashes hashes = check_together(data, 6, exec, ranks.hosts());
      EXPECT_EQ(hashes.bin, content_hash(folder / "x.bin"));
      EXPECT_EQ(hashes.idx, content_hash(folder / "x.idx"));
      // Every rank reports the token that one of them found.
      const std::string message =
          message_of<ConfigError>([&] { check_together(data, 5, exec, ranks.hosts()); });
      EXPECT_NE(message.find("x.bin: byte 0: token 5"), std::string::npos) << message;
    });
  }
}

TEST(SharedPass, RefusesFilesThatDifferBetweenRanks) {
  const ScratchFolder folder;
  for (const auto& [name, count] : {std::pair{"a", 5}, std::pair{"b", 6}}) {
    IndexedDatasetWriter writer(folder / name, TokenType::kU16);
    writer.add_document(std::vector<int32_t>(static_cast<size_t>(count), 1));
    writer.finish();
  }
  run_ranks(3, [&](ThreadComm& ranks, Exec& exec) {
    const IndexedDataset data(folder / (ranks.rank() == 2 ? "b" : "a"));
    const std::string message =
        message_of<ConfigError>([&] { check_together(data, 6, exec, ranks.hosts()); });
    EXPECT_NE(message.find("10 bytes for rank 0 and 12 for rank 2"), std::string::npos) << message;
  });
}

}  // namespace
}  // namespace weft::test
