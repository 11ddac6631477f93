#include <cmath>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "launcher/app/progress.h"

namespace weft {
namespace {

TEST(FormatCount, KeepsThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.00k");
  EXPECT_EQ(format_count(9995), "10.0k");  // not "9.995k", not "10.00k"
  EXPECT_EQ(format_count(19900), "19.9k");
  EXPECT_EQ(format_count(99950), "100k");
  EXPECT_EQ(format_count(999499), "999k");
  EXPECT_EQ(format_count(999500), "1.00M");
  EXPECT_EQ(format_count(2.4e9), "2.40G");
}

TEST(FormatBytes, UsesPowersOf1024) {
  EXPECT_EQ(format_bytes(0), "0B");
  EXPECT_EQ(format_bytes(999), "999B");
  EXPECT_EQ(format_bytes(1024), "1.0K");
  EXPECT_EQ(format_bytes(3435973837), "3.2G");
  EXPECT_EQ(format_bytes(int64_t{812} << 20), "812M");
  EXPECT_EQ(format_bytes(int64_t{1} << 62), "4.0E");
}

TEST(FormatDuration, UsesTheTwoLargestUnits) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(362), "6m02s");
  EXPECT_EQ(format_duration(3900), "1h05m");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600), "2d03h");
  EXPECT_EQ(format_duration(-1), "-");
  EXPECT_EQ(format_duration(INFINITY), "-");
}

StepReport example() {
  return {.step = 120,
          .steps = 1000,
          .loss = 3.82139,
          .aux_loss = 0.0102,
          .grad_norm = 0.713,
          .lr = 9.9e-5,
          .step_ms = 412.3,
          .tokens_per_s = 19870,
          .mfu = 0.312,
          .comm = 0.04,
          .expert_load = 1.209,
          .memory = 3435973837,
          .eta_seconds = 362};
}

TEST(StepLine, ShowsEveryColumn) {
  EXPECT_EQ(step_line(example()),
            "step   120/1000  loss 3.8214  aux 0.0102  |g| 0.71  lr 9.9e-05  412 ms  19.9k tok/s"
            "  mfu 31%  comm  4%  experts 1.21x  mem 3.2G  eta 6m02s");
}

TEST(StepLine, KeepsColumnsWhereTheyAre) {
  const std::string usual = step_line(example());
  StepReport other = example();
  other.step = 7;
  other.loss = 10.51234;
  other.aux_loss = 1.5;
  other.grad_norm = 12.34;
  other.lr = 0;
  other.step_ms = 3.21;
  other.tokens_per_s = 812;
  other.mfu = 0.04;
  other.comm = 0.6;
  other.expert_load = 13.1;
  other.memory = int64_t{812} << 20;
  const std::string line = step_line(other);
  EXPECT_EQ(line,
            "step     7/1000  loss 10.512  aux 1.5000  |g| 12.3  lr 0.0e+00  3.2 ms    812 tok/s"
            "  mfu  4%  comm 60%  experts 13.1x  mem 812M  eta 6m02s");
  EXPECT_EQ(line.size(), usual.size());
  for (const double ms : {0.4, 9.96, 99.6, 999.6, 1412.0, 14120.0, 141200.0}) {
    other.step_ms = ms;
    EXPECT_EQ(step_line(other).size(), usual.size()) << step_line(other);
  }
}

TEST(StepLine, LeavesOutWhatTheRunDoesNotHave) {
  StepReport r = example();
  r.aux_loss = r.mfu = r.comm = r.expert_load = std::nullopt;
  EXPECT_EQ(step_line(r),
            "step   120/1000  loss 3.8214  |g| 0.71  lr 9.9e-05  412 ms  19.9k tok/s  mem 3.2G"
            "  eta 6m02s");
}

TEST(StepLine, ShowsWhatIsNotFinite) {
  StepReport r = example();
  r.loss = NAN;
  r.grad_norm = INFINITY;
  r.skipped = true;
  EXPECT_NE(step_line(r).find("loss    nan"), std::string::npos) << step_line(r);
  EXPECT_NE(step_line(r).find("|g|  inf"), std::string::npos) << step_line(r);
  EXPECT_TRUE(step_line(r).ends_with("skipped")) << step_line(r);
}

std::string written(bool terminal, int columns = 12,
                    const std::string& live = "a live line that is too long") {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, terminal, columns);
    progress.live(live);
    progress.live("too soon to be shown");
    progress.line("stays");
  }
  std::rewind(file);
  std::string text(200, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(Progress, RewritesItsLiveLineOnATerminalOnly) {
  EXPECT_EQ(written(true), "\ra live line\033[K\r\033[Kstays\n");
  EXPECT_EQ(written(false), "stays\n");
}

TEST(Progress, LeavesOutColumnsBeforeTheLastWhereTheTerminalIsNarrow) {
  const std::string line = "step 1/9  loss 3.1  lr 1e-3  eta 6m02s";
  const auto shown = [&](int columns) {
    const std::string text = written(true, columns, line);
    return text.substr(1, text.find('\033') - 1);
  };
  EXPECT_EQ(shown(100), line);
  EXPECT_EQ(shown(36), "step 1/9  loss 3.1  eta 6m02s");
  EXPECT_EQ(shown(30), "step 1/9  loss 3.1  eta 6m02s");
  EXPECT_EQ(shown(29), "step 1/9  eta 6m02s");
  EXPECT_EQ(shown(6), "step ");
}

}  // namespace
}  // namespace weft
