#include "core/base/log.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace weft {
namespace {

std::string contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST(Log, WritesTaggedLinesAtOnceAndAppends) {
  const std::string file = testing::TempDir() + "weft_log_test.txt";
  std::filesystem::remove(file);
  {
    Log log({.rank = 3, .ranks = 8, .file = file, .console = false});
    log.debug("not shown at this level");
    log.info("step {} of {}", 2, 5);
    EXPECT_NE(contents(file).find(" rank 3 info: step 2 of 5\n"), std::string::npos);
  }
  Log again({.rank = 0, .ranks = 1, .file = file, .level = LogLevel::kDebug, .console = false});
  again.debug("braces {} stay", "{}");
  const std::string text = contents(file);
  EXPECT_NE(text.find("step 2 of 5\n"), std::string::npos);
  EXPECT_NE(text.find(" debug: braces {} stay\n"), std::string::npos);
  EXPECT_EQ(text.find("not shown"), std::string::npos);
  EXPECT_EQ(text.find("rank 0"), std::string::npos);
  std::filesystem::remove(file);
}

TEST(Log, SaysWhenTheFileCannotBeWritten) {
  EXPECT_THROW(Log({.file = "/proc/no/such/log.txt", .console = false}), Error);
}

}  // namespace
}  // namespace weft
