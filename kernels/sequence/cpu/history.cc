#include "kernels/sequence/cpu/history.h"

#include <cstring>

#include "kernels/cpu/tasks.h"

namespace weft::kernels::cpu {
namespace {

template <class To, class From>
void convert_row(const From* from, To* to, int64_t width) {
  for (int64_t c = 0; c < width; ++c) {
    if constexpr (std::is_same_v<To, float>) {
      to[c] = to_float(from[c]);
    } else {
      to[c] = to_bf16(from[c]);
    }
  }
}

// Row `j` of `to` = row `i` of `from`; they may be the same.
void copy_row(const ConstView& from, int64_t i, const View& to, int64_t j) {
  const char* in = static_cast<const char*>(from.data) + i * from.row_stride * size_of(from.dtype);
  char* out = static_cast<char*>(to.data) + j * to.row_stride * size_of(to.dtype);
  if (from.dtype == to.dtype) {
    std::memmove(out, in, static_cast<size_t>(to.width() * size_of(to.dtype)));
  } else if (to.dtype == DType::kF32) {
    convert_row(reinterpret_cast<const bf16*>(in), reinterpret_cast<float*>(out), to.width());
  } else {
    convert_row(reinterpret_cast<const float*>(in), reinterpret_cast<bf16*>(out), to.width());
  }
}

void clear_row(const View& to, int64_t row) {
  std::memset(static_cast<char*>(to.data) + row * to.row_stride * size_of(to.dtype), 0,
              static_cast<size_t>(to.width() * size_of(to.dtype)));
}

}  // namespace

void leave_history(Exec& exec, const HistoryShape& shape, ConstView entering, ConstView x,
                   View leaving) {
  if (nothing_in(leaving)) return;
  exec.threads.run(shape.count(), [&](int64_t d) {
    const int64_t begin = shape.documents[d], tokens = shape.documents[d + 1] - begin;
    // First to last: where the bytes are the same, a row comes from itself or from one after it.
    for (int64_t i = 0; i < shape.rows; ++i) {
      const int64_t from = i + tokens, to = d * shape.rows + i;
      if (from >= shape.rows) {
        copy_row(x, begin + from - shape.rows, leaving, to);
      } else if (given(entering)) {
        copy_row(entering, d * shape.rows + from, leaving, to);
      } else {
        clear_row(leaving, to);
      }
    }
  });
}

Tensor history_edges(Exec& exec, const HistoryShape& shape, ConstView entering, ConstView x) {
  const Tensor edges = exec.scratch({shape.count(), 2 * shape.rows, shape.width});
  exec.threads.run(shape.count(), [&](int64_t d) {
    const int64_t begin = shape.documents[d], tokens = shape.documents[d + 1] - begin;
    for (int64_t i = 0; i < shape.rows; ++i) {
      copy_row(entering, d * shape.rows + i, edges, 2 * d * shape.rows + i);
      if (i < tokens) copy_row(x, begin + i, edges, (2 * d + 1) * shape.rows + i);
    }
  });
  return edges;
}

}  // namespace weft::kernels::cpu
