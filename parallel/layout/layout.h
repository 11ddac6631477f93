#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/parameter.h"
#include "parallel/layout/layout_rules.h"

namespace weft {

// [begin, end)
struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

// Part `index` of `count` things cut into `parts`: sizes differ by one at most.
IndexRange even_part(int64_t count, int index, int parts);

// Blocks of stage `stage` of pipe x virtual_stages: as parallel.stage_layers says, else evenly.
IndexRange layers_of_stage(const ParallelConfig& degrees, int64_t layers, int stage);

// Where a rank stands and whom it shares what with. Pure data from the config and (rank, world): no
// MPI, no memory; thousands of ranks cost nothing.
//
// Two views of the same ranks, fastest axis first:
//   dense    tensor, sequence, data, pipe
//   expert   expert_tensor, expert, expert_data, pipe
// The expert view factors the tensor x sequence x data ranks of a stage another way, so that
// experts can be spread over ranks that are data, sequence or tensor neighbours for all other
// weights.
struct Layout {
  ParallelConfig degrees;
  int rank = 0, world = 1;
  Coordinates here;  // on every axis, both views

  // World ranks, ascending, that differ from this one on `axes` alone. All axes belong to one view.
  std::vector<int> group(std::span<const Axis> axes) const;

  // Blocks of this pipeline stage; with virtual stages a rank holds several runs of them, one per
  // `chunk`.
  IndexRange stage_layers(int64_t layers, int chunk = 0) const;
  // Tokens of a sequence on this rank: contiguous, in rank order.
  IndexRange span(int64_t tokens) const;
  // Of a step's micro-batches, those that this data rank computes.
  IndexRange micro_batches(int64_t count) const;
};

// The layout of `rank`. Throws ConfigError with the whole product, the broken rule and the nearest
// layouts that work when the config, or its model's layers (`model`), does not fit that many ranks.
Layout make_layout(const Config& config, int rank, int world, const PlaceRule& model = {});

// Coordinates alone, for degrees that divide `world`.
Coordinates coordinates_of(const ParallelConfig& degrees, int rank, int world);

std::string describe(const Coordinates& here);  // "pipe 1, data 0, sequence 1, tensor 1"
std::string product_text(
    const Coordinates& here);  // "tensor 2 x sequence 1 x data 4 x pipe 1 = 8 ranks"
std::string layout_table(const ParallelConfig& degrees, int world);  // a line per rank

}  // namespace weft
