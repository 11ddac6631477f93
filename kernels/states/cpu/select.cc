#include "kernels/states/cpu/select.h"

#include <cstring>

#include "kernels/cpu/tasks.h"

namespace weft::kernels::cpu {
namespace {

// to[i] = from(i), or zeros where that is null; a state is cut into several tasks.
template <class From>
void copy_states(Exec& exec, View to, From from) {
  const int64_t n = to.shape[0], size = to.shape.elements() / n;
  const RowBlocks blocks = row_blocks(size, 1);
  exec.threads.run(n * blocks.count(), [&](int64_t task) {
    const int64_t i = task / blocks.count(), begin = task % blocks.count() * blocks.size,
                  end = std::min(size, begin + blocks.size);
    const auto bytes = static_cast<size_t>(end - begin) * sizeof(float);
    float* place = host<float>(to) + i * size + begin;
    const float* source = from(i, size);
    if (source == nullptr) {
      std::memset(place, 0, bytes);
    } else {
      std::memcpy(place, source + begin, bytes);
    }
  });
}

const float* otherwise_of(ConstView otherwise, int64_t i, int64_t size) {
  return given(otherwise) ? host<float>(otherwise) + i * size : nullptr;
}

}  // namespace

void pick_states(Exec& exec, ConstView from, ConstView index, ConstView otherwise, View to) {
  const auto* picked = host<int32_t>(index);
  const int64_t count = from.shape[0];
  for (int64_t i = 0; i < to.shape[0]; ++i) {
    WEFT_CHECK(picked[i] < count, "pick_states: state {} of {}", picked[i], count);
  }
  copy_states(exec, to, [&](int64_t i, int64_t size) {
    return picked[i] < 0 ? otherwise_of(otherwise, i, size) : host<float>(from) + picked[i] * size;
  });
}

void pass_states(Exec& exec, ConstView passes, ConstView state, ConstView otherwise, View to) {
  copy_states(exec, to, [&](int64_t i, int64_t size) {
    return host<float>(passes)[i] != 0.0f ? host<float>(state) + i * size
                                          : otherwise_of(otherwise, i, size);
  });
}

}  // namespace weft::kernels::cpu
