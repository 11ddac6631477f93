#include <sys/resource.h>
#include <zstd.h>

#include "core/base/error.h"
#include "tests/support/data_command.h"
#include "tests/support/program.h"

namespace weft::test {
namespace {

// One frame of zstd; `window`: log2 of its window, 0: the library's choice.
std::string frame(const std::string& text, int window = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  if (window > 0) ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  // Written as a stream, so that the frame lacks its size and keeps its window.
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  ZSTD_outBuffer out{packed.data(), packed.size(), 0};
  EXPECT_FALSE(ZSTD_isError(ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue)));
  EXPECT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(context);
  return packed.substr(0, out.pos);
}

std::string refusal(const ScratchFolder& folder, const std::string& content) {
  put_file(folder / "bad", content);
  return message_of<ConfigError>([&] {
    run_data({"build", "--out", folder / "x", folder / "bad"});
  });
}

// Several frames, a skippable frame, and more text than any buffer holds.
TEST(PackedText, IsReadFromZstd) {
  const ScratchFolder folder;
  std::string lines;
  Texts texts;
  for (int i = 0; i < 60000; ++i) {
    texts.push_back(fmt::format("line {} \u20ac", i * i));
    lines += "{\"text\": \"" + texts.back() + "\"}\n";
  }
  const std::string skipped("\x50\x2A\x4D\x18\x04\0\0\0abcd", 12);
  put_file(folder / "in.jsonl.zst",
           skipped + frame(lines.substr(0, 777)) + frame("") + frame(lines.substr(777)));
  run_data({"build", "--out", folder / "x", "--jsonl", folder / "in.jsonl.zst"});
  EXPECT_EQ(documents_of(folder / "x"), texts);
  put_file(folder / "whole.zst", frame("a whole\ntext\n"));
  run_data({"build", "--out", folder / "y", folder / "whole.zst"});
  EXPECT_EQ(documents_of(folder / "y"), Texts{"a whole\ntext\n"});
}

TEST(PackedText, ThatIsCutOrChangedIsRefused) {
  const ScratchFolder folder;
  const std::string packed = frame("some words, and others, and some words again");
  for (size_t length = 4; length < packed.size(); ++length) {
    EXPECT_NE(refusal(folder, packed.substr(0, length)).find("ends inside a frame"),
              std::string::npos)
        << length;
  }
  std::string changed = packed;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  EXPECT_NE(refusal(folder, changed).find("zstd: "), std::string::npos);
  EXPECT_NE(refusal(folder, packed + "garbage").find("zstd: "), std::string::npos);
  EXPECT_NE(refusal(folder, frame("x", 28)).find("a window of more than 128 MB"),
            std::string::npos);
  for (const char* ending : {".bin", ".idx", ".building"})
    EXPECT_FALSE(std::filesystem::exists(folder / (std::string("x") + ending)));
}

// A few KB that unpack to 4 GB without end of a document are refused in the memory of one document.
TEST(PackedText, ThatUnpacksWithoutEndIsRefused) {
  const ScratchFolder folder;
  const std::string million = frame(std::string(1 << 26, 'a'));
  std::string bomb;
  for (int i = 0; i < 64; ++i) bomb += million;
  put_file(folder / "bomb.zst", bomb);
  const Outcome outcome = run_weft({"data", "build", "--out", folder / "x", folder / "bomb.zst"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("a document of more than 256 MB"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "x.building"));
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  EXPECT_LT(used.ru_maxrss, int64_t{1} << 20) << "KiB";
}

}  // namespace
}  // namespace weft::test
