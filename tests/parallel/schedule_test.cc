#include "parallel/schedule.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "parallel/schedule_check.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

constexpr PipeSchedule kAll[] = {PipeSchedule::kGpipe, PipeSchedule::k1F1B,
                                 PipeSchedule::kInterleaved, PipeSchedule::kZeroBubble};

template <class Visit>
void each_shape(PipeSchedule schedule, Visit&& visit) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 17; ++micro_batches) {
      for (int chunks = 1; chunks <= (schedule == PipeSchedule::kInterleaved ? 3 : 1); ++chunks) {
        if (chunks > 1 && micro_batches % ranks != 0) continue;
        visit(PipeShape{ranks, micro_batches, chunks});
      }
    }
  }
}

std::string text(const PipeShape& s) {
  return fmt::format("{} ranks, {} micro-batches, {} chunks", s.ranks, s.micro_batches, s.chunks);
}

// Every micro-batch runs once, in order, for any blocking of sends.
TEST(PipeSchedule, EndsForEveryShape) {
  for (const PipeSchedule schedule : kAll) {
    each_shape(schedule, [&](const PipeShape& shape) {
      for (const Sends sends : {Sends::kBuffered, Sends::kMeet}) {
        EXPECT_NO_THROW(simulate(plans_of(schedule, shape), shape, {}, sends))
            << "schedule " << static_cast<int>(schedule) << ", " << text(shape);
      }
    });
  }
}

TEST(PipeSchedule, EvaluationEndsForEveryShape) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 17; ++micro_batches) {
      for (int chunks = 1; chunks <= 3; ++chunks) {
        const PipeShape shape{ranks, micro_batches, chunks};
        std::vector<Plan> plans;
        for (int r = 0; r < ranks; ++r) plans.push_back(forward_plan(shape, r));
        for (const Sends sends : {Sends::kBuffered, Sends::kMeet}) {
          EXPECT_NO_THROW(simulate(plans, shape, {}, sends)) << text(shape);
        }
      }
    }
  }
}

// Idle time of a pipeline with equal stages: (ranks - 1) times the uncovered part of one forward
// and one backward. Costs are whole numbers, so that sums are exact.
TEST(PipeSchedule, HasTheBubbleOfItsFormula) {
  const PipeCosts costs{.forward = 2, .input = 2, .weight = 2};
  const double whole = costs.forward + costs.input + costs.weight;
  for (const PipeSchedule schedule :
       {PipeSchedule::kGpipe, PipeSchedule::k1F1B, PipeSchedule::kInterleaved}) {
    each_shape(schedule, [&](const PipeShape& shape) {
      const SimulatedPipe pipe = simulate(plans_of(schedule, shape), shape, costs);
      const double work = shape.micro_batches * shape.chunks * whole;
      EXPECT_DOUBLE_EQ(pipe.time, work + (shape.ranks - 1) * whole) << text(shape);
      EXPECT_DOUBLE_EQ(pipe.bubble, 1 - work / pipe.time);
    });
  }
}

// ZB-H1: weight halves fill waiting times; (ranks - 1) (forward + input - weight) remains.
TEST(PipeSchedule, ZeroBubbleLeavesAThird) {
  each_shape(PipeSchedule::kZeroBubble, [&](const PipeShape& shape) {
    if (shape.micro_batches < shape.ranks) return;  // too little work to fill the bubble
    const SimulatedPipe pipe = simulate(plans_of(PipeSchedule::kZeroBubble, shape), shape);
    EXPECT_LE(pipe.time, 3 * shape.micro_batches + (shape.ranks - 1)) << text(shape);
  });
}

TEST(PipeSchedule, HoldsNoMoreMicroBatchesThanItSays) {
  for (const PipeSchedule schedule : kAll) {
    each_shape(schedule, [&](const PipeShape& shape) {
      const SimulatedPipe pipe = simulate(plans_of(schedule, shape), shape);
      for (int r = 0; r < shape.ranks; ++r) {
        const int held = pipe.ranks[static_cast<size_t>(r)].held,
                  all = shape.micro_batches * shape.chunks;
        if (schedule == PipeSchedule::kGpipe) {
          EXPECT_EQ(held, all);
        }
        if (schedule == PipeSchedule::k1F1B) {
          EXPECT_EQ(held, std::min(shape.ranks - r, all)) << text(shape);
        }
        if (schedule == PipeSchedule::kZeroBubble) {
          EXPECT_LE(held, shape.ranks) << text(shape);
        }
        if (schedule == PipeSchedule::kInterleaved && shape.chunks > 1) {
          EXPECT_LE(held, std::min(all, (shape.chunks + 1) * shape.ranks)) << text(shape);
        }
      }
    });
  }
}

TEST(PipeSchedule, IsReadable) {
  const PipeShape shape{.ranks = 2, .micro_batches = 3};
  EXPECT_EQ(to_string(plan_of(PipeSchedule::k1F1B, shape, 0)),
            "F0 >F0 F1 >F1 <B0 B0 F2 >F2 <B1 B1 <B2 B2");
  EXPECT_EQ(to_string(plan_of(PipeSchedule::k1F1B, shape, 1)),
            "<F0 F0 B0 >B0 <F1 F1 B1 >B1 <F2 F2 B2 >B2");
  EXPECT_EQ(to_string(plan_of(PipeSchedule::kGpipe, {.ranks = 1, .micro_batches = 2}, 0)),
            "F0 F1 B0 B1");
  EXPECT_EQ(pipe_schedule("zero_bubble"), PipeSchedule::kZeroBubble);
}

TEST(PipeSchedule, RefusesInterleavingThatDoesNotDivide) {
  const std::string message = message_of<ConfigError>([] {
    plan_of(PipeSchedule::kInterleaved, {.ranks = 4, .micro_batches = 6, .chunks = 2}, 0);
  });
  EXPECT_NE(message.find("8 micro-batches"), std::string::npos) << message;
}

// The validator itself must find deadlocks and mistakes.
TEST(ScheduleCheck, FindsDeadlocksAndMistakes) {
  const PipeShape shape{.ranks = 2, .micro_batches = 1};
  const std::vector<Plan> good = plans_of(PipeSchedule::k1F1B, shape);
  const auto message = [&](std::vector<Plan> plans) {
    return message_of<Error>([&] { simulate(plans, shape, {}, Sends::kMeet); });
  };
  std::vector<Plan> crossed = good;  // the second rank waits for a forward after its backward
  crossed[1] = {
      {Step::kSendBackward, 0}, {Step::kRecvForward, 0}, {Step::kForward, 0}, {Step::kBackward, 0}};
  EXPECT_NE(message(crossed).find("before it was computed"), std::string::npos);
  std::vector<Plan> missing = good;
  missing[0].pop_back();
  EXPECT_NE(message(missing).find("1 backwards of 2"), std::string::npos);
  std::vector<Plan> twice = good;
  twice[0].push_back({Step::kBackward, 0});
  EXPECT_NE(message(twice).find("twice"), std::string::npos);
  std::vector<Plan> stuck = good;  // it waits for a message that is never sent
  stuck[1].push_back({Step::kRecvForward, 7});
  const std::string never = message(stuck);
  EXPECT_NE(never.find("never ends: rank 1 in"), std::string::npos) << never;
}

}  // namespace
}  // namespace weft::test
