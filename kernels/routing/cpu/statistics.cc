#include "kernels/routing/cpu/statistics.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/reductions.h"

// A few numbers per token: too few to be worth vectors or threads, but for means over rows.
namespace weft::kernels::cpu {

void expert_fractions(Exec&, ConstView count, ConstView load, View f) {
  const int64_t experts = f.width();
  const int64_t* counts = host<int64_t>(count);
  const float* given_load = host<float>(load);
  const bool loaded =
      given_load != nullptr && std::accumulate(given_load, given_load + experts, 0.0) > 0;
  for (int64_t r = 0; r < f.rows(); ++r, counts += experts) {
    float* to = host<float>(f) + r * experts;
    if (loaded) {
      std::copy_n(given_load, experts, to);
      continue;
    }
    const auto total = static_cast<double>(
        std::max<int64_t>(1, std::accumulate(counts, counts + experts, int64_t{0})));
    for (int64_t e = 0; e < experts; ++e) {
      to[e] = static_cast<float>(static_cast<double>(counts[e]) / total);
    }
  }
}

void router_statistics(Exec& exec, const RouterStatistics& in, View numbers) {
  const int64_t tokens = in.probabilities.rows(), experts = in.probabilities.width();
  const auto all = static_cast<double>(std::max<int64_t>(1, in.tokens));
  const float* fraction = host<float>(in.fraction);
  const Tensor mean = exec.scratch({experts});
  double balance = 0, z = 0, entropy = 0;
  for (int64_t r = 0; r < in.fraction.rows(); ++r) {
    const int64_t begin = std::clamp<int64_t>(r * in.run - in.first, 0, tokens);
    const int64_t size = std::clamp<int64_t>((r + 1) * in.run - in.first, 0, tokens) - begin;
    if (size == 0) continue;
    column_mean(exec, in.probabilities.row_range(begin, size), mean);
    for (int64_t e = 0; e < experts; ++e) {
      const double share = fraction[r * experts + e];
      balance += static_cast<double>(experts) * share * host<float>(mean)[e] *
                 static_cast<double>(size) / all;
    }
  }
  float margin = std::numeric_limits<float>::infinity();
  for (int64_t t = 0; t < tokens; ++t) {
    const double lse = host<float>(in.log_sum_exp)[t];
    z += lse * lse;
    entropy += host<float>(in.entropy)[t];
    margin = std::min(margin, host<float>(in.margin)[t]);
  }
  double* to = host<double>(numbers);
  to[0] = balance;
  to[1] = z / all;
  to[2] = entropy / all;
  to[3] = margin;
}

void forced_choices(Exec&, int64_t experts, View index) {
  for (int64_t i = 0; i < index.shape.elements(); ++i) {
    host<int32_t>(index)[i] = static_cast<int32_t>(i % experts);
  }
}

void update_expert_load(Exec&, const ExpertLoad& in) {
  const auto total =
      static_cast<double>(std::accumulate(in.counts.begin(), in.counts.end(), int64_t{0}));
  if (total == 0) return;
  const double mean = total / static_cast<double>(in.counts.size());
  for (size_t e = 0; e < in.counts.size(); ++e) {
    const auto count = static_cast<double>(in.counts[e]);
    if (given(in.bias) && count != mean) {
      host<float>(in.bias)[e] += static_cast<float>(count < mean ? in.rate : -in.rate);
    }
    if (given(in.load)) host<float>(in.load)[e] = static_cast<float>(count / total);
  }
}

}  // namespace weft::kernels::cpu
