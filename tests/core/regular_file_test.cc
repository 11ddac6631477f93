// Files read front to back by several threads, and hashes of what comes in pieces.
#include "core/regular_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "core/error.h"
#include "core/hash.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

constexpr int64_t kMiB = 1 << 20;

std::string pattern(int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  uint32_t x = 1;
  for (char& c : text) c = static_cast<char>((x = x * 1664525u + 1013904223u) >> 24);
  return text;
}

// Around the borders of blocks, and more blocks than are read ahead.
TEST(ReadThrough, GivesEveryByteOnceAndInOrder) {
  const ScratchFolder folder;
  for (const int64_t size :
       {int64_t{0}, int64_t{1}, kMiB, 4 * kMiB - 1, 4 * kMiB, 4 * kMiB + 1, 43 * kMiB + 7}) {
    const std::string text = pattern(size);
    put_file(folder / "file", text);
    std::string read;
    read_through(RegularFile(folder / "file"), [&](int64_t at, std::span<const std::byte> block) {
      EXPECT_EQ(at, static_cast<int64_t>(read.size()));
      read.append(reinterpret_cast<const char*>(block.data()), block.size());
    });
    EXPECT_TRUE(read == text) << size;
  }
}

TEST(ReadThrough, EndsWithTheExceptionOfItsUser) {
  const ScratchFolder folder;
  put_file(folder / "file", pattern(9 * kMiB));
  const RegularFile file(folder / "file");
  EXPECT_THROW(read_through(file,
                            [](int64_t at, std::span<const std::byte>) {
                              if (at > 0) throw Error("enough");
                            }),
               Error);
}

TEST(ReadThrough, TellsOfAFileThatBecameShorter) {
  const ScratchFolder folder;
  put_file(folder / "file", pattern(9 * kMiB));
  const RegularFile file(folder / "file");
  std::filesystem::resize_file(folder / "file", 5 * kMiB + 3);
  const std::string said =
      message_of<Error>([&] { read_through(file, [](int64_t, std::span<const std::byte>) {}); });
  EXPECT_NE(said.find("became shorter while it was read"), std::string::npos) << said;
}

TEST(RegularFile, RefusesWhatIsNone) {
  const ScratchFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder / "pipe", folder / "", std::string("/dev/null")}) {
    EXPECT_NE(message_of<ConfigError>([&] { RegularFile file(path); }).find("not a regular file"),
              std::string::npos);
  }
  EXPECT_THROW(RegularFile(folder / "missing"), ConfigError);
}

TEST(Hasher, OfPiecesEqualsTheHashOfTheWhole) {
  const std::string text = pattern(10007);
  const auto bytes = std::as_bytes(std::span(text));
  for (const size_t piece : {size_t{1}, size_t{13}, size_t{239}, size_t{241}, size_t{4096}}) {
    Hasher hasher;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      hasher.add(bytes.subspan(at, std::min(piece, bytes.size() - at)));
    }
    EXPECT_EQ(hasher.text(), hash_of(text)) << piece;
  }
  EXPECT_EQ(Hasher().text(), hash_of(std::string()));
}

}  // namespace
}  // namespace weft::test
