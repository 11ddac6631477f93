#pragma once

#include "parallel/schedule.h"

namespace weft {

// Time of one computation of one chunk, in any unit.
struct PipeCosts {
  double forward = 1, input = 1, weight = 1;  // a whole backward takes both halves
  double transfer = 0;
};

// When a send is over: when it has been handed over, or only when the receiver has come for it, as
// large messages of MPI are. Plans must end under both; bubbles are those of the first.
enum class Sends : uint8_t { kBuffered, kMeet };

struct SimulatedRank {
  double end = 0;   // when its last action ends
  double busy = 0;  // computing
  int held = 0;     // most micro-batches (times chunks) whose activations it keeps at once
};
struct SimulatedPipe {
  std::vector<SimulatedRank> ranks;
  double time = 0;    // until all have ended
  double bubble = 0;  // idle share of the rank that computes most: 0 to 1
};

// Runs the plans of all ranks against each other. Throws Error when they cannot end (who waits for
// whom), when a micro-batch is computed twice, never, or before what it needs, or when what is sent
// is not received.
SimulatedPipe simulate(const std::vector<Plan>& plans, const PipeShape& shape,
                       const PipeCosts& costs = {}, Sends sends = Sends::kBuffered);

// The idle share of a pipeline with equal stages whose forward and two halves of backward take the
// same time, as a formula in p pipe ranks, m micro-batches and v chunks per rank.
std::string bubble_formula(PipeSchedule schedule);

std::vector<Plan> plans_of(PipeSchedule schedule, const PipeShape& shape);  // of all ranks

}  // namespace weft
