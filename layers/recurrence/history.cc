#include "layers/recurrence/history.h"

#include <algorithm>
#include <cstring>

#include "core/host_access.h"
#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

int64_t added(const Summary& span, int64_t n) {
  return static_cast<int64_t>(host<float>(span.transition[0])[n]);
}

void copy_state_rows(const Tensor& from, int64_t i, const Tensor& to, int64_t j, int64_t count) {
  const int64_t width = to.shape()[2];
  std::memcpy(host<float>(to) + j * width, host<float>(from) + i * width,
              static_cast<size_t>(count * width) * sizeof(float));
}

}  // namespace

Summary history_summary(Exec& exec, ConstView x, const Sequence& sequence, int64_t rows) {
  const int64_t width = x.width(), count = sequence.count();
  const Tensor tails = exec.zeros({count, rows, width}), counts = exec.empty({count});
  const Tensor flat = tails.reshaped({count * rows, width});
  for (int64_t d = 0; d < count; ++d) {
    const int64_t begin = sequence.documents[static_cast<size_t>(d)],
                  end = sequence.documents[static_cast<size_t>(d) + 1];
    const int64_t n = std::min(rows, end - begin);
    host<float>(counts)[d] = static_cast<float>(n);
    if (n > 0) kernels::copy(exec, x.row_range(end - n, n), flat.row_range((d + 1) * rows - n, n));
  }
  return {{counts}, {tails}};
}

State apply_history(Exec& exec, const Summary& span, const State& entering) {
  const Shape& s = span.update[0].shape();
  const Tensor leaving = exec.empty(s);
  std::memcpy(host<float>(leaving), host<float>(span.update[0]),
              static_cast<size_t>(s.elements()) * sizeof(float));
  for (int64_t n = 0; n < s[0]; ++n) {
    const int64_t new_rows = added(span, n);
    copy_state_rows(entering[0], n * s[1] + new_rows, leaving, n * s[1], s[1] - new_rows);
  }
  return {leaving};
}

State apply_history_adjoint(Exec& exec, const Summary& span, const State& d_leaving) {
  const Shape& s = span.update[0].shape();
  const Tensor d_entering = exec.zeros(s);
  for (int64_t n = 0; n < s[0]; ++n) {
    const int64_t new_rows = added(span, n);
    copy_state_rows(d_leaving[0], n * s[1], d_entering, n * s[1] + new_rows, s[1] - new_rows);
  }
  return {d_entering};
}

Summary combine_histories(Exec& exec, const Summary& first, const Summary& second) {
  const Shape& s = first.update[0].shape();
  const Tensor counts = exec.empty({s[0]});
  for (int64_t n = 0; n < s[0]; ++n) {
    host<float>(counts)[n] = static_cast<float>(std::min(s[1], added(first, n) + added(second, n)));
  }
  return {{counts}, apply_history(exec, second, first.update)};
}

}  // namespace weft
