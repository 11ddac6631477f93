#include "launcher/train/memory_check.h"

#include <gtest/gtest.h>

#include <map>

#include "core/data/indexed_dataset.h"
#include "tests/support/program.h"

namespace weft::test {
namespace {

std::optional<int64_t> with_files(const std::map<std::string, std::string>& files) {
  return available_memory([&](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? "" : found->second;
  });
}

TEST(MemoryCheck, TheTightestLimitCounts) {
  const std::string info =
      "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:      50 kB\nSwapFree: 3 kB\n";
  EXPECT_EQ(with_files({}), std::nullopt);
  EXPECT_EQ(with_files({{"/proc/meminfo", info}}), 50 * 1024);
  const std::string group = "/sys/fs/cgroup/memory.";
  EXPECT_EQ(
      with_files({{"/proc/meminfo", info}, {group + "max", "max\n"}, {group + "current", "7\n"}}),
      50 * 1024);
  EXPECT_EQ(with_files(
                {{"/proc/meminfo", info}, {group + "max", "3000\n"}, {group + "current", "700\n"}}),
            2300);
  EXPECT_EQ(with_files({{group + "max", "3000\n"}, {group + "current", "7000\n"}}), 0);
  EXPECT_GT(available_memory().value(), 0);
}

TEST(MemoryCheck, SaysWhatIsNeededAndWhatThereIs) {
  const MemoryNeed need{
      .state = int64_t{3} << 30, .copy = int64_t{1} << 30, .activations = 512 << 20};
  EXPECT_NO_THROW(check_memory(need, 2, int64_t{9} << 30));
  EXPECT_NO_THROW(check_memory(need, 2, std::nullopt));
  const std::string said =
      message_of<ConfigError>([&] { check_memory(need, 2, int64_t{8} << 30); });
  for (const char* part : {"each of 2 ranks here needs at least 4.5G", "moments 3.0G", "saved 1.0G",
                           "512M or more", "has 8.0G left", "run.background_save=false"}) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }
}

// Terabytes of addresses can be reserved without memory: the run must still be refused at once.
TEST(MemoryCheck, AModelThatCannotFitIsRefusedBeforeItStarts) {
  const ScratchFolder folder;
  IndexedDatasetWriter writer(folder / "corpus", TokenType::kU16);
  writer.add_document(std::vector<int32_t>(2000, 5));
  writer.finish();
  const Outcome o =
      run_weft({"train", in_project("configs/tiny.toml"), "run.dir=" + (folder / "run"),
                "data.train=[\"" + (folder / "corpus") + "\"]", "model.hidden=65536",
                "model.vocab=4000000"});
  EXPECT_EQ(o.code, 2) << o.out << o.err;
  EXPECT_NE(o.err.find("out of memory before it starts"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace weft::test
