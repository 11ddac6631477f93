#include "kernels/rows/gather.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/gather.h"

namespace weft::kernels {

void gather_rows(Exec& exec, ConstView x, ConstView index, View y) {
  if (nothing_in(y)) return;
  WEFT_CHECK(x.dtype == y.dtype && x.width() == y.width(), "gather_rows: rows of {} {} into {} {}",
             name_of(x.dtype), x.shape, name_of(y.dtype), y.shape);
  check_vector<int32_t>(index, y.rows(), "gather_rows: index");
  dispatch(
      exec,
      {.name = "gather_rows", .type = y.dtype, .read = bytes_of(y, index), .written = bytes_of(y)},
      cpu::gather_rows, x, index, y);
}

}  // namespace weft::kernels
