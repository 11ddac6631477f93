// Reading of files and links, and hashes of data in pieces.
#include "core/files/regular_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "core/base/error.h"
#include "core/files/hash.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

std::string pattern(int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  uint32_t x = 1;
  for (char& c : text) c = static_cast<char>((x = x * 1664525u + 1013904223u) >> 24);
  return text;
}

TEST(RegularFile, GivesAnyOfItsBytes) {
  const ScratchFolder folder;
  const std::string text = pattern(9973);
  put_file(folder / "file", text);
  const RegularFile file(folder / "file");
  EXPECT_EQ(file.size(), 9973);
  EXPECT_TRUE(content_of(file) == text);
  std::string part(100, ' ');
  file.read(9873, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, text.substr(9873));
}

TEST(RegularFile, TellsOfBytesThatAreGone) {
  const ScratchFolder folder;
  put_file(folder / "file", pattern(9000));
  const RegularFile file(folder / "file");
  std::filesystem::resize_file(folder / "file", 5003);
  const std::string said = message_of<ReadError>([&] { content_of(file); });
  EXPECT_NE(said.find("became shorter while it was read"), std::string::npos) << said;
}

// The reason distinguishes a missing file from one that cannot be opened now.
TEST(RegularFile, TellsWhyItCannotBeOpened) {
  const ScratchFolder folder;
  const auto reason_of = [](const std::string& path, RegularFile::Links links) {
    try {
      const RegularFile file(path, links);
      return -1;
    } catch (const OpenError& failure) {
      return failure.reason;
    }
  };
  put_file(folder / "file", "x");
  std::filesystem::create_symlink("file", folder / "link");
  EXPECT_EQ(reason_of(folder / "link", RegularFile::Links::kFollow), -1);
  EXPECT_EQ(reason_of(folder / "link", RegularFile::Links::kRefuse), ELOOP);
  EXPECT_EQ(reason_of(folder / "missing", RegularFile::Links::kRefuse), ENOENT);
  EXPECT_EQ(reason_of(folder / "", RegularFile::Links::kFollow), 0);
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
