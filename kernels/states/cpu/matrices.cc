#include "kernels/states/cpu/matrices.h"

#include <cstring>

#include "kernels/cpu/tasks.h"
#include "kernels/states/cpu/isa/states.h"

namespace weft::kernels::cpu {

void set_identity(Exec& exec, int64_t first, View matrices) {
  const int64_t columns = matrices.width(),
                rows = matrices.shape[matrices.shape.dims() - 2];  // of each matrix
  float* to = host<float>(matrices);
  for_blocks(exec, row_blocks(matrices.rows(), columns), [&](int64_t, int64_t begin, int64_t end) {
    std::memset(to + begin * columns, 0,
                static_cast<size_t>((end - begin) * columns) * sizeof(float));
    for (int64_t r = begin; r < end; ++r) to[r * columns + first + r % rows] = 1.0f;
  });
}

void transpose_matrices(Exec& exec, ConstView x, View y) {
  const int dims = x.shape.dims();
  const int64_t rows = x.shape[dims - 2], columns = x.shape[dims - 1], size = rows * columns;
  const StatesTable& table = table_of<StatesTable>(exec.isa);
  exec.threads.run(x.shape.elements() / size, [&](int64_t i) {
    table.transpose({host<float>(x) + i * size, host<float>(y) + i * size, rows, columns});
  });
}

}  // namespace weft::kernels::cpu
