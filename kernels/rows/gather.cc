#include "kernels/rows/gather.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/gather.h"

namespace weft::kernels {

void gather_rows(Exec& exec, ConstView x, std::span<const int32_t> index, View y) {
  if (nothing_in(y)) return;
  const auto rows = static_cast<int64_t>(index.size());
  WEFT_CHECK(x.dtype == y.dtype && x.width() == y.width() && y.rows() == rows,
             "gather_rows: {} rows of {} {} into {} {}", rows, name_of(x.dtype), x.shape,
             name_of(y.dtype), y.shape);
  dispatch(exec,
           {.name = "gather_rows",
            .type = y.dtype,
            .read = bytes_of(y) + rows * size_of(DType::kI32),
            .written = bytes_of(y)},
           cpu::gather_rows, x, index, y);
}

}  // namespace weft::kernels
