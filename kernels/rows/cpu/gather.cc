#include "kernels/rows/cpu/gather.h"

#include <cstring>

#include "kernels/cpu/tasks.h"

namespace weft::kernels::cpu {

void gather_rows(Exec& exec, ConstView x, ConstView index, View y) {
  const int64_t rows = y.rows();
  const int32_t* rows_of_x = host<int32_t>(index);
  const int64_t size = size_of(x.dtype), bytes = x.width() * size;
  const auto* from = static_cast<const char*>(x.data);
  auto* to = static_cast<char*>(y.data);
  for_blocks(exec, row_blocks(rows, x.width()), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t source = rows_of_x[i];
      WEFT_CHECK(source < x.rows(), "gather_rows: row {} of {}", source, x.rows());
      char* out = to + i * y.row_stride * size;
      if (source < 0) {
        std::memset(out, 0, static_cast<size_t>(bytes));
      } else {
        std::memcpy(out, from + source * x.row_stride * size, static_cast<size_t>(bytes));
      }
    }
  });
}

}  // namespace weft::kernels::cpu
