#include "kernels/attention/forgetting.h"

#include <cmath>

#include "kernels/attention/attention_ranges.h"
#include "kernels/attention/cpu/forgetting.h"
#include "kernels/checks.h"
#include "kernels/dispatch.h"

namespace weft::kernels {

double pruning_threshold(double bound, int64_t keys, double log_epsilon) {
  return -2 * bound - std::log(static_cast<double>(keys)) + log_epsilon;
}

void find_first_blocks(std::span<const double> c, double threshold, const BlockShape& block,
                       std::span<int32_t> first, int64_t start) {
  int64_t j = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(first.size()); ++i) {
    const int64_t query = start + i * block.queries;
    // A block whose last key is not before the query has a bias of at least 0, above any threshold.
    while ((j + 1) * block.keys <= query && c[query] - c[(j + 1) * block.keys - 1] < threshold) ++j;
    first[i] = static_cast<int32_t>(j);
  }
}

void score_bounds(Exec& exec, const Attention& in, View bounds) {
  check_f32_matrix(bounds, documents_of(in), in.heads, "score_bounds: bounds");
  dispatch(exec,
           {.name = "score_bounds",
            .type = in.q.dtype,
            .flops = 2 * (elements(in.q) + elements(in.k)),
            .read = bytes_of(in.q, in.k),
            .written = bytes_of(bounds)},
           cpu::score_bounds, in, bounds);
}

}  // namespace weft::kernels
