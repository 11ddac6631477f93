#include "launcher/train/expert_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft {

void describe_experts(const std::vector<MoeReport>& step, StepMetrics& metrics) {
  for (const MoeReport& moe : step) {
    const auto& counts = moe.counts;
    const auto total =
        static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    double most = 0, entropy = 0;
    for (const int64_t count : counts) {
      const double share = total > 0 ? static_cast<double>(count) / total : 0.0;
      most = std::max(most, share);
      if (share > 0) entropy -= share * std::log(share);
    }
    metrics.expert_load.push_back(most * static_cast<double>(counts.size()));
    metrics.expert_entropy.push_back(entropy);
    metrics.router_entropy.push_back(moe.router_entropy);
    metrics.router_margin.push_back(moe.margin);
    metrics.dead_experts.push_back(std::count(counts.begin(), counts.end(), 0));
    metrics.dropped_by_layer.push_back(moe.dropped);
    metrics.dropped += moe.dropped;
  }
}

void list_expert_pairs(const std::vector<MoeReport>& step, StepMetrics& metrics) {
  for (const MoeReport& moe : step) metrics.expert_pairs.push_back(moe.counts);
}

void describe_pruning(const std::vector<PruningReport>& step, StepMetrics& metrics) {
  for (const PruningReport& report : step) {
    std::vector<double>& heads = metrics.acp_pruned.emplace_back();
    for (const auto& [kept, causal] : report.heads) {
      heads.push_back(causal == 0 ? 0.0
                                  : 1.0 - static_cast<double>(kept) / static_cast<double>(causal));
    }
  }
}

}  // namespace weft
