#pragma once

#include <vector>

#include "layers/context/feed_forward.h"
#include "parallel/comm/host_group.h"

namespace weft {

// Adds one micro-batch, `share` of the step and starting at its token `begin`, to the step's
// reports.
void add_reports(const std::vector<MoeReport>& reports, double share, int64_t begin,
                 std::vector<MoeReport>& step);

// The reports of all tokens of a step from those of each rank's, the same on every rank, so that
// what they decide (the bias of an expert, the load that the next balance loss takes) does not
// depend on the layout.
void sum_reports(HostGroup& ranks, std::vector<MoeReport>& step);

// The reports of all layers from those of each stage's, in the order of layers, the same on every
// stage.
void gather_reports(HostGroup& stages, std::vector<MoeReport>& step);

// Likewise what pruning left of attention.
void add_pruning(const std::vector<PruningReport>& reports, std::vector<PruningReport>& step);
void sum_pruning(HostGroup& ranks, std::vector<PruningReport>& step);
void gather_pruning(HostGroup& stages, std::vector<PruningReport>& step);

}  // namespace weft
