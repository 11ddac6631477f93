#include "layers/recurrence/history.h"

#include <algorithm>

#include "kernels/rows/elementwise.h"
#include "kernels/states/history.h"
#include "layers/context/tensor_of.h"

namespace weft {

Summary history_summary(Exec& exec, ConstView x, const Sequence& sequence, int64_t rows) {
  const int64_t width = x.width(), count = sequence.count();
  const Tensor tails = exec.zeros({count, rows, width}),
               flat = tails.reshaped({count * rows, width});
  std::vector<float> counts;
  for (int64_t d = 0; d < count; ++d) {
    const int64_t begin = sequence.documents[static_cast<size_t>(d)],
                  end = sequence.documents[static_cast<size_t>(d) + 1];
    const int64_t n = std::min(rows, end - begin);
    counts.push_back(static_cast<float>(n));
    if (n > 0) kernels::copy(exec, x.row_range(end - n, n), flat.row_range((d + 1) * rows - n, n));
  }
  return {{tensor_of(exec, std::move(counts))}, {tails}};
}

State apply_history(Exec& exec, const Summary& span, const State& entering) {
  const Tensor leaving = exec.empty(span.update[0].shape());
  kernels::append_history(exec, span.transition[0], span.update[0], entering[0], leaving);
  return {leaving};
}

State apply_history_adjoint(Exec& exec, const Summary& span, const State& d_leaving) {
  const Tensor d_entering = exec.empty(span.update[0].shape());
  kernels::append_history_adjoint(exec, span.transition[0], d_leaving[0], d_entering);
  return {d_entering};
}

Summary combine_histories(Exec& exec, const Summary& first, const Summary& second) {
  const Shape& s = first.update[0].shape();
  const Tensor counts = exec.empty({s[0]});
  kernels::add_history_counts(exec, first.transition[0], second.transition[0], s[1], counts);
  return {{counts}, apply_history(exec, second, first.update)};
}

}  // namespace weft
