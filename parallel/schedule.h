#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Pipeline schedules as data: what every stage does, in order. Pure functions, checked by
// simulating all stages (parallel/schedule_check.h); an executor is a loop over a plan.
namespace weft {

enum class Step : uint8_t {
  kRecvForward,
  kForward,
  kSendForward,
  kRecvBackward,
  kBackward,
  kSendBackward,
  kBackwardInput,
  kBackwardWeight,  // the two halves of kBackward, where a schedule splits it
};
bool is_transfer(Step step);

// One thing one rank does. A chunk is one of the runs of layers that a rank holds when there are
// several.
struct Action {
  Step step;
  int micro_batch;
  int chunk = 0;
  bool operator==(const Action&) const = default;
};
using Plan = std::vector<Action>;

enum class PipeSchedule : uint8_t { kGpipe, k1F1B, kInterleaved, kZeroBubble };
PipeSchedule pipe_schedule(const std::string& name);  // as parallel.schedule names it

// How a pipeline is cut. Run c of rank r holds the layers of stage c * ranks + r of chunks * ranks.
struct PipeShape {
  int ranks = 1, micro_batches = 1, chunks = 1;
  int stages() const { return ranks * chunks; }
};

// The plan of `rank`. Transfers that stand next to each other are issued together
// (Communicator::transfer), or neighbours that both send first would wait for each other forever.
// In every schedule a chunk's backwards (and their weight halves) run in the order of
// micro-batches, so that gradients are the same sums, bit for bit.
//
//   gpipe        all forwards, then all backwards. Holds all micro-batches.
//   1f1b         backward as early as possible. Holds at most `ranks` of them.
//   interleaved  1f1b over several chunks per rank: the bubble is that much smaller, more
//   transfers. Needs
//                micro-batches in multiples of the ranks.
//   zero_bubble  1f1b with the weight half of backward moved into the bubble (ZB-H1). Holds at most
//   `ranks`.
Plan plan_of(PipeSchedule schedule, const PipeShape& shape, int rank);

// Forward alone, for evaluation: any number of micro-batches.
Plan forward_plan(const PipeShape& shape, int rank);

std::string to_string(
    const Plan& plan);  // "F0 >F0 F1 >F1 <B0 B0": > sends, < receives; chunk as F0.1

// Consecutive transfers of a plan and the single computations between them, in order.
struct ActionGroup {
  size_t begin, end;  // of the plan
};
std::vector<ActionGroup> grouped(const Plan& plan);

}  // namespace weft
