#include <sys/resource.h>
#include <zstd.h>

#include <chrono>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launcher/data/data_build.h"
#include "tests/support/data_command.h"
#include "tests/support/parquet_writer.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace weft::test {
namespace {

const std::string kGolden = "tests/golden/parquet";

// Files of pyarrow, and a text file between them.
std::vector<std::string> inputs() {
  return {in_project(kGolden + "/list_zstd_dictionary_v2.parquet"), in_project("core/README.md"),
          in_project(kGolden + "/nullable_gzip_plain_v2.parquet"),
          in_project(kGolden + "/required_snappy_dictionary_v1.parquet")};
}

Texts expected() {
  const auto all = nlohmann::json::parse(get_file(in_project(kGolden + "/texts.json")));
  Texts texts;
  for (const std::string& path : inputs()) {
    const std::string name = std::filesystem::path(path).filename().string();
    const Texts more = all.contains(name) ? all[name].get<Texts>() : Texts{get_file(path)};
    texts.insert(texts.end(), more.begin(), more.end());
  }
  return texts;
}

DataBuild small_build(const std::string& out) {
  DataBuild o;
  o.from.inputs = inputs();
  o.out = out;
  o.batch_bytes = 60;
  return o;
}

TEST(DataParquet, IsBuiltOnAnyNumberOfThreads) {
  const ScratchFolder folder;
  for (const int threads : {1, 2, 5}) {
    DataBuild o = small_build(folder / fmt::format("x{}", threads));
    o.threads = threads;
    build_dataset(o);
    EXPECT_EQ(documents_of(o.out), expected());
    EXPECT_EQ(files_of_dataset(o.out), files_of_dataset(folder / "x1"));
  }
}

// Stopped after any number of batches, in the middle of a page, of a list, of a row group.
TEST(DataParquet, GoesOnWhereItWasStopped) {
  const ScratchFolder folder;
  build_dataset(small_build(folder / "whole"));
  for (const int stop_at : {1, 2, 3, 5, 6}) {
    DataBuild o = small_build(folder / fmt::format("x{}", stop_at));
    o.threads = 1;
    o.keep_bytes = 1;
    int calls = 0;
    o.after_batches = [&](const DataBuilt&) {
      if (++calls == stop_at) throw Error("stopped");
    };
    EXPECT_THROW(build_dataset(o), Error);
    o.after_batches = {};
    const DataBuilt built = build_dataset(o);
    EXPECT_GT(built.resumed, 0);
    EXPECT_LT(built.resumed, built.documents);
    EXPECT_EQ(files_of_dataset(o.out), files_of_dataset(folder / "whole")) << stop_at;
  }
}

TEST(DataParquet, TakesTheColumnOfTheKey) {
  const ScratchFolder folder;
  const std::string file = in_project(kGolden + "/refused_absent.parquet");
  run_data({"build", "--out", folder / "x", "--key", "title", file});
  EXPECT_EQ(documents_of(folder / "x"), (Texts{"a", "b"}));
  const std::string message = message_of<ConfigError>([&] {
    run_data({"build", "--out", folder / "y", file});
  });
  EXPECT_NE(message.find("no column \"text\"; it has texts in the columns [content, title]"),
            std::string::npos)
      << message;
  EXPECT_THROW(run_data({"build", "--out", folder / "y", "--document", "line", file}), ConfigError);
}

// Runs `weft data build` on it: expects code 2, no files left and little memory. Returns the
// message.
std::string refused(const ScratchFolder& folder, const std::string& content) {
  put_file(folder / "bad.parquet", content);
  const Outcome outcome =
      run_weft({"data", "build", "--out", folder / "x", folder / "bad.parquet"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  for (const char* ending : {".bin", ".idx", ".tokenizer.json", ".building"})
    EXPECT_FALSE(std::filesystem::exists(folder / (std::string("x") + ending))) << ending;
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  EXPECT_LT(used.ru_maxrss, 300 << 10) << "KiB";  // the largest of all children so far
  return outcome.err;
}

TEST(DataParquet, ThatIsHostileEndsWithCode2) {
  const ScratchFolder folder;
  const std::string whole = get_file(in_project(kGolden + "/nullable_zstd_dictionary_v1.parquet"));
  EXPECT_NE(refused(folder, whole.substr(0, whole.size() / 2)).find("may have been cut"),
            std::string::npos);
  // A GiB of zeros in a frame of zstd, said to be a page of 10 bytes, of a GiB and of two.
  std::string bomb(1 << 20, '\0');
  {
    const std::string zeros(1 << 26, '\0');
    ZSTD_CCtx* context = ZSTD_createCCtx();
    ZSTD_CCtx_setPledgedSrcSize(context, uint64_t{1} << 30);
    ZSTD_outBuffer out{bomb.data(), bomb.size(), 0};
    for (int i = 0; i < 16; ++i) {
      ZSTD_inBuffer in{zeros.data(), zeros.size(), 0};
      ASSERT_FALSE(ZSTD_isError(
          ZSTD_compressStream2(context, &out, &in, i == 15 ? ZSTD_e_end : ZSTD_e_continue)));
    }
    bomb.resize(out.pos);
    ZSTD_freeCCtx(context);
  }
  for (const int64_t says : {int64_t{10}, (int64_t{1} << 30) + 1}) {
    const MadePage page{.stored = bomb, .values = 2, .unpacked = says};
    EXPECT_NE(refused(folder, parquet_bytes({.row_groups = {{page}}, .codec = 6})).find("damaged"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace weft::test
