// Commands without an order are found, whichever event is missing and however the timing was.
#include <gtest/gtest.h>

#include "tests/support/vgpu/tests/on_vgpu.h"

namespace weft::test {
namespace {

struct Result {
  int waits;
  bool ordered;
  Outcome outcome;
};
Result run_random(int seed, int dropped, int order) {
  Result r{
      0, false,
      run_case("random_program", {"SEED=" + std::to_string(seed), "DROP=" + std::to_string(dropped),
                                  "VGPU_ORDER=" + std::to_string(order)})};
  char text[20] = {};
  std::sscanf(r.outcome.out.c_str(), "waits %d %19s", &r.waits, text);
  r.ordered = std::string(text) == "ordered";
  return r;
}

TEST(VgpuOrder, ProgramsWithTheirEventsPass) {
  for (int seed = 1; seed <= 8; ++seed) {
    const Result r = run_random(seed, -1, seed % 3);
    EXPECT_TRUE(r.ordered);
    EXPECT_GT(r.waits, 5);
    EXPECT_EQ(r.outcome.code, 0) << "seed " << seed << "\n" << r.outcome.out << r.outcome.err;
  }
}

TEST(VgpuOrder, EveryMissingEventIsFound) {
  int found = 0;
  for (int seed = 1; seed <= 2; ++seed) {
    const int waits = run_random(seed, -1, 0).waits;
    for (int dropped = 0; dropped < waits; ++dropped) {
      const Result r = run_random(seed, dropped, dropped % 3);
      const bool named = r.outcome.err.find("commands without an order") != std::string::npos;
      EXPECT_EQ(named, !r.ordered) << "seed " << seed << ", without wait " << dropped << "\n"
                                   << r.outcome.out << r.outcome.err;
      EXPECT_EQ(r.outcome.code, r.ordered ? 0 : kMistakes);
      found += named ? 1 : 0;
    }
  }
  EXPECT_GT(found, 10);
}

}  // namespace
}  // namespace weft::test
