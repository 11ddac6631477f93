// Specifications of injected faults: what happens, where, and which are refused.
#include "launcher/train/fault.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace weft::test {
namespace {

TEST(Fault, ThrowsAtItsRankStepAndPlaceAlone) {
  const auto never = [] { return false; };
  const Fault before("1:3");
  EXPECT_THROW(before.before_step(1, 3, never), Error);
  EXPECT_NO_THROW(before.before_step(0, 3, never));
  EXPECT_NO_THROW(before.before_step(1, 2, never));
  EXPECT_NO_THROW(before.in_layer(1, 3, "forward", 0));
  EXPECT_NO_THROW(before.in_save(1, 3, SaveMoment::kWritten, {}));

  const Fault inside("0:2:backward:5");
  EXPECT_THROW(inside.in_layer(0, 2, "backward", 5), Error);
  EXPECT_NO_THROW(inside.in_layer(0, 2, "forward", 5));
  EXPECT_NO_THROW(inside.in_layer(0, 2, "backward", 4));
  EXPECT_NO_THROW(inside.before_step(0, 2, never));

  const Fault saving("0:4:indexed:fails");
  EXPECT_THROW(saving.in_save(0, 4, SaveMoment::kIndexed, {}), Error);
  EXPECT_NO_THROW(saving.in_save(0, 4, SaveMoment::kWritten, {}));
  EXPECT_NO_THROW(Fault("").before_step(0, 0, never));
}

TEST(Fault, WaitsUntilTheRunIsAskedToStop) {
  int calls = 0;
  Fault("0:1:asked").before_step(0, 1, [&] { return ++calls == 3; });
  EXPECT_EQ(calls, 3);
}

TEST(Fault, RefusesWhatItDoesNotKnow) {
  for (const char* spec : {"1", "1:", ":3", "-1:3", "1:3:", "1:3:explode", "1:3:forward",
                           "1:3:forward:x", "1:3:forward:1:2", "1:3:written:killed", "1:3:slow",
                           "1:3:slow=", "1:3:written:", "1:3:hang:fails"}) {
    EXPECT_THROW(Fault{spec}, ConfigError) << spec;
  }
}

}  // namespace
}  // namespace weft::test
