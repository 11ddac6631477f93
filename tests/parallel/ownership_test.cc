#include "parallel/layout/ownership.h"

#include <gtest/gtest.h>

#include <numeric>

namespace weft::test {
namespace {

// Weights of every kind: replicated, cut by rows and by columns, stacked matrices cut apart, shared
// heads, extents that do not divide, experts cut twice, nothing but one number.
std::vector<ParameterSpec> specs() {
  return {
      {.name = "norm", .global = {7}, .partial_over = {Axis::kTensor}},
      {.name = "rows", .global = {11, 3}, .splits = {{.dim = 0, .axis = Axis::kTensor}}},
      {.name = "columns", .global = {5, 8}, .splits = {{.dim = 1, .axis = Axis::kTensor}}},
      {.name = "gate_up",
       .global = {10, 3},
       .splits = {{.dim = 0, .axis = Axis::kTensor, .blocks = {6, 4}}}},
      {.name = "kv",
       .global = {8, 2},
       .splits = {{.dim = 0, .axis = Axis::kTensor, .replicas = 2, .unit = 2}}},
      {.name = "cube", .global = {3, 5, 2}},
      {.name = "experts",
       .global = {6, 8, 3},
       .splits = {{.dim = 0, .axis = Axis::kExpert},
                  {.dim = 1, .axis = Axis::kExpertTensor, .blocks = {4, 4}}},
       .expert = true},
      {.name = "bias", .global = {5}, .buffer = true},
      {.name = "one", .global = {}},
  };
}

struct Case {
  ParallelConfig degrees;
  int world;
};
std::vector<Case> layouts() {
  return {{{}, 1},
          {{}, 3},
          {{}, 16},  // more sharers than some weights have rows
          {{.tensor = 2, .expert = 2}, 4},
          {{.tensor = 2, .sequence = 2, .expert = 3, .expert_tensor = 2}, 12},
          {{.tensor = 4, .sequence = 1, .expert = 2, .expert_tensor = 4}, 8},
          {{.tensor = 2, .sequence = 3, .expert = 6}, 12}};
}

int64_t global_index(const Shape& global, const Slice& box, int64_t i) {
  int64_t index = 0, stride = 1;
  for (int dim = global.dims() - 1; dim >= 0; --dim) {
    index += (box.offset[dim] + i % box.extent[dim]) * stride;
    i /= box.extent[dim];
    stride *= global[dim];
  }
  return index;
}

// The global index of every element of the local tensor: slice by slice, stacked along one dim.
std::vector<int64_t> local_to_global(const ParameterSpec& spec, const Coordinates& here) {
  const Shape local = local_shape(spec, here);
  std::vector<int64_t> out(static_cast<size_t>(local.elements()));
  int stacked = 0;
  for (const Split& split : spec.splits) {
    if (!split.blocks.empty()) stacked = split.dim;
  }
  Shape start = local;
  for (int dim = 0; dim < start.dims(); ++dim) start[dim] = 0;
  for (const Slice& slice : slices_of(spec, here)) {
    for (int64_t i = 0; i < slice.extent.elements(); ++i) {
      const Slice at{start, slice.extent};
      out[static_cast<size_t>(global_index(local, at, i))] = global_index(spec.global, slice, i);
    }
    if (start.dims() > 0) start[stacked] += slice.extent[stacked];
  }
  return out;
}

// Over all ranks, owners of rows cover every element of the global tensor exactly once, whole or
// sharded, and each piece in local memory matches its box.
TEST(Ownership, AnswersForEveryElementExactlyOnce) {
  for (const auto& [degrees, world] : layouts()) {
    for (const ParameterSpec& spec : specs()) {
      for (const Zero zero : {Zero::kWhole, Zero::kSharded}) {
        std::vector<int> answers(static_cast<size_t>(spec.global.elements()));
        for (int rank = 0; rank < world; ++rank) {
          const Coordinates here = coordinates_of(degrees, rank, world);
          const Ownership own = ownership_of(spec, here, zero);
          const std::vector<int64_t> global = local_to_global(spec, here);
          int64_t covered = 0;
          for (const OwnedPiece& piece : pieces_of(spec, here, own.rows)) {
            const int64_t count = piece.box.extent.elements();
            covered += count;
            for (int64_t i = 0; i < count; ++i) {
              const int64_t element = global_index(spec.global, piece.box, i);
              ASSERT_EQ(global[static_cast<size_t>(piece.begin + i)], element) << spec.name;
              if (own.answers) ++answers[static_cast<size_t>(element)];
            }
          }
          EXPECT_EQ(covered, own.rows.size() * row_width(local_shape(spec, here))) << spec.name;
        }
        EXPECT_EQ(answers, std::vector<int>(answers.size(), 1))
            << spec.name << " on " << world << " ranks, zero " << static_cast<int>(zero);
      }
    }
  }
}

// Ranks that share a slice split its rows: each row is updated by one of them, and all hold the
// slice.
TEST(Ownership, SharersTileTheLocalRows) {
  for (const auto& [degrees, world] : layouts()) {
    for (const ParameterSpec& spec : specs()) {
      for (int rank = 0; rank < world; ++rank) {
        const Layout layout{degrees, rank, world, coordinates_of(degrees, rank, world)};
        const Ownership own = ownership_of(spec, layout.here, Zero::kSharded);
        if (spec.buffer) continue;
        const std::vector<int> sharers = layout.group(own.shared_over);
        ASSERT_EQ(static_cast<int>(sharers.size()), own.share.size);
        EXPECT_EQ(sharers[static_cast<size_t>(own.share.index)], rank)
            << "shares do not follow ranks";
        int64_t next = 0;
        for (const int other : sharers) {
          const Coordinates there = coordinates_of(degrees, other, world);
          const Ownership theirs = ownership_of(spec, there, Zero::kSharded);
          EXPECT_EQ(slices_of(spec, there), slices_of(spec, layout.here)) << spec.name;
          EXPECT_EQ(theirs.rows.begin, next);
          next = theirs.rows.end;
        }
        EXPECT_EQ(next, row_count(local_shape(spec, layout.here)));
      }
    }
  }
}

TEST(Ownership, SumsDenseGradientsOverDataAndSequenceAndExpertsOverTheirOwn) {
  const Coordinates here = coordinates_of({.tensor = 2, .sequence = 2, .expert = 2}, 0, 8);
  const auto all = specs();
  const Ownership norm = ownership_of(all[0], here, Zero::kSharded);
  EXPECT_EQ(norm.partial_over, std::vector{Axis::kTensor});
  EXPECT_EQ(norm.shared_over, (std::vector{Axis::kData, Axis::kSequence}));
  const Ownership experts = ownership_of(all[6], here, Zero::kSharded);
  EXPECT_EQ(experts.shared_over, std::vector{Axis::kExpertData});
  EXPECT_EQ(experts.share.size, 4);
  const Ownership alone = ownership_of(all[0], {}, Zero::kSharded);
  EXPECT_TRUE(alone.partial_over.empty() && alone.shared_over.empty() && alone.answers);
}

}  // namespace
}  // namespace weft::test
