#pragma once

#include <vector>

#include "parallel/layout/layout.h"

namespace weft {

// How optimizer states lie: whole on every rank that holds the parameter, or cut over the ranks
// that share it.
enum class Zero : uint8_t { kWhole = 0, kSharded = 1 };

// What follows from a parameter's spec and a rank's place, and is decided nowhere else: over whom
// its gradient is summed, which of its rows this rank updates, and whether it answers for them.
//
// Ranks that hold the same slice and see other tokens (data and sequence ranks; expert_data ranks
// for experts) are its sharers. Its gradient is summed first over `partial_over`, then over the
// sharers.
//
// Rows are those of the local tensor: elements of a parameter of one dim, else runs of the last
// dim.
struct Ownership {
  std::vector<Axis> partial_over;  // of the spec, where there is more than one rank
  // Tensor ranks that hold the same slice of a parameter that is cut over them, fewer than all;
  // each uses it for its own, so that its gradient is a part of theirs together.
  int replicas = 1;
  std::vector<Axis> shared_over;  // the sharers' axes, where there is more than one rank
  Coordinates::Place share;       // this rank among the sharers, in rank order
  IndexRange rows;                // whose optimizer state is here
  int64_t rows_per_share = 0;     // of every sharer but the last ones, which may have fewer or none
  // Of all ranks with these rows exactly one answers: counts them in the gradient norm and writes
  // them to checkpoints.
  bool answers = false;
};

Ownership ownership_of(const ParameterSpec& spec, const Coordinates& here, Zero zero);

int64_t row_count(const Shape& local);
int64_t row_width(const Shape& local);

// One run of a local tensor that is a box of the global one.
struct OwnedPiece {
  Slice box;          // of the global tensor
  int64_t begin = 0;  // of the local elements; box.extent.elements() of them follow each other
};

// Rows of a parameter's local tensor as boxes of the global one, in local order.
std::vector<OwnedPiece> pieces_of(const ParameterSpec& spec, const Coordinates& here,
                                  IndexRange rows);

}  // namespace weft
