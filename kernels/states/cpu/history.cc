#include "kernels/states/cpu/history.h"

#include <cstring>

#include "kernels/cpu/tasks.h"

namespace weft::kernels::cpu {
namespace {

void copy_numbers(const float* from, float* to, int64_t count) {
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

// each(sequence, its first number, new numbers, all numbers)
template <class Each>
void each_history(Exec& exec, ConstView counts, const Shape& shape, Each each) {
  const int64_t size = shape[1] * shape[2];
  exec.threads.run(shape[0], [&](int64_t i) {
    const auto added = static_cast<int64_t>(host<float>(counts)[i]);
    WEFT_CHECK(added >= 0 && added <= shape[1], "append_history: {} of {} rows", added, shape[1]);
    each(i * size, added * shape[2], size);
  });
}

}  // namespace

void append_history(Exec& exec, ConstView counts, ConstView added, ConstView entering,
                    View leaving) {
  each_history(exec, counts, leaving.shape, [&](int64_t first, int64_t fresh, int64_t size) {
    float* to = host<float>(leaving) + first;
    copy_numbers(host<float>(entering) + first + fresh, to, size - fresh);
    copy_numbers(host<float>(added) + first + size - fresh, to + size - fresh, fresh);
  });
}

void append_history_adjoint(Exec& exec, ConstView counts, ConstView d_leaving, View d_entering) {
  each_history(exec, counts, d_entering.shape, [&](int64_t first, int64_t fresh, int64_t size) {
    float* to = host<float>(d_entering) + first;
    std::memset(to, 0, static_cast<size_t>(fresh) * sizeof(float));
    copy_numbers(host<float>(d_leaving) + first, to + fresh, size - fresh);
  });
}

void add_history_counts(Exec&, ConstView first, ConstView second, int64_t rows, View sum) {
  for (int64_t i = 0; i < sum.shape.elements(); ++i) {
    host<float>(sum)[i] =
        std::min(static_cast<float>(rows), host<float>(first)[i] + host<float>(second)[i]);
  }
}

}  // namespace weft::kernels::cpu
