#include "kernels/states/matrices.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/states/cpu/matrices.h"

namespace weft::kernels {

void set_identity(Exec& exec, int64_t first, View matrices) {
  const int dims = matrices.shape.dims();
  WEFT_CHECK(dims >= 2, "set_identity: matrices {}", matrices.shape);
  check_numbers(matrices, matrices.shape.elements(), "set_identity: matrices");
  const int64_t rows = matrices.shape[dims - 2], columns = matrices.shape[dims - 1];
  WEFT_CHECK(first >= 0 && first + rows <= columns, "set_identity: rows {}..{} of {}", first,
             first + rows, columns);
  if (nothing_in(matrices)) return;
  dispatch(exec, {.name = "set_identity", .written = bytes_of(matrices)}, cpu::set_identity, first,
           matrices);
}

void transpose_matrices(Exec& exec, ConstView x, View y) {
  const int dims = x.shape.dims();
  WEFT_CHECK(dims >= 2 && y.shape.dims() == dims && x.shape[dims - 2] == y.shape[dims - 1] &&
                 x.shape[dims - 1] == y.shape[dims - 2],
             "transpose_matrices: {} to {}", x.shape, y.shape);
  check_numbers(x, x.shape.elements(), "transpose_matrices: x");
  check_numbers(y, x.shape.elements(), "transpose_matrices: y");
  if (nothing_in(x)) return;
  dispatch(exec, {.name = "transpose_matrices", .read = bytes_of(x), .written = bytes_of(y)},
           cpu::transpose_matrices, x, y);
}

}  // namespace weft::kernels
