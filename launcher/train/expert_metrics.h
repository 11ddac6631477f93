#pragma once

#include "core/report/metrics.h"
#include "layers/context/feed_forward.h"

namespace weft {

// What the metrics of a step say about its mixtures of experts: loads, entropies, dead experts,
// drops.
void describe_experts(const std::vector<MoeReport>& step, StepMetrics& metrics);

// The load of every expert, which is long: not for every step.
void list_expert_pairs(const std::vector<MoeReport>& step, StepMetrics& metrics);

// And about what pruning left out of forgetting attention.
void describe_pruning(const std::vector<PruningReport>& step, StepMetrics& metrics);

}  // namespace weft
