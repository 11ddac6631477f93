#include "kernels/rows/elementwise.h"

#include <cstring>
#include <numeric>
#include <vector>

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/elementwise.h"

namespace weft::kernels {
void copy(Exec& exec, ConstView x, View y) {
  const Extent extent = common_extent("copy", x, y);
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const Elementwise args{rows_of(x), {}, rows_of(y), 1.0f};
  for_tiles(exec, extent, [&](const Box& box) { table.copy(args, box); });
}

void add(Exec& exec, ConstView a, ConstView b, View y) {
  const Extent extent = common_extent("add", a, b, y);
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const Elementwise args{rows_of(a), rows_of(b), rows_of(y), 1.0f};
  for_tiles(exec, extent, [&](const Box& box) { table.add(args, box); });
}

void scale(Exec& exec, ConstView x, float factor, View y) {
  const Extent extent = common_extent("scale", x, y);
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const Elementwise args{rows_of(x), {}, rows_of(y), factor};
  for_tiles(exec, extent, [&](const Box& box) { table.scale(args, box); });
}

void fill(Exec& exec, View y, float value) {
  const Extent extent = common_extent("fill", y);
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const Elementwise args{{}, {}, rows_of(y), value};
  for_tiles(exec, extent, [&](const Box& box) { table.fill(args, box); });
}

void add_bias(Exec& exec, ConstView bias, View y) {
  if (nothing_in(y)) return;
  check_real(y, "add_bias: y");
  const float* values = vector_of<float>(bias, y.width(), "add_bias: bias");
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  for_tiles(exec, {y.rows(), y.width()},
            [&](const Box& box) { table.add_bias(values, rows_of(y), box); });
}

void column_sum(Exec& exec, ConstView x, View sum) {
  if (nothing_in(x)) return;
  check_real(x, "column_sum: x");
  const int64_t width = x.width();
  float* total = vector_of<float>(sum, width, "column_sum: sum");
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const RowBlocks blocks = sum_blocks(x.rows(), width);
  const Tensor partial = exec.scratch({blocks.count(), width});
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    float* mine = host<float>(partial) + b * width;
    std::memset(mine, 0, static_cast<size_t>(width) * sizeof(float));
    table.add_rows(rows_of(x), {begin, end, 0, width}, mine);
  });
  add_partials(exec, partial, total);
}

void add_partials(Exec& exec, const Tensor& partial, float* sum) {
  constexpr int64_t kColumns = 256;
  const ConstView view = partial;
  const int64_t width = view.width(), rows = view.rows();
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const int64_t pieces = (width + kColumns - 1) / kColumns;
  exec.threads.run(pieces, [&](int64_t i) {
    const int64_t left = i * kColumns, right = std::min(width, left + kColumns);
    table.add_rows(rows_of(view), {0, rows, left, right}, sum);
  });
}

double sum_of_squares(Exec& exec, ConstView x) {
  WEFT_CHECK(x.dtype == DType::kF32, "sum_of_squares: x is {}, not f32", name_of(x.dtype));
  const Tiles tiles(common_extent("sum_of_squares", x));
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  std::vector<double> sums(static_cast<size_t>(tiles.count()));
  exec.threads.run(tiles.count(), [&](int64_t i) {
    sums[static_cast<size_t>(i)] = table.sum_of_squares(rows_of(x), tiles[i]);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

bool all_finite(Exec& exec, ConstView x) {
  WEFT_CHECK(x.dtype == DType::kF32, "all_finite: x is {}, not f32", name_of(x.dtype));
  const Tiles tiles(common_extent("all_finite", x));
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  std::vector<uint8_t> fine(static_cast<size_t>(tiles.count()));
  exec.threads.run(tiles.count(), [&](int64_t i) {
    fine[static_cast<size_t>(i)] = table.all_finite(rows_of(x), tiles[i]);
  });
  return std::find(fine.begin(), fine.end(), 0) == fine.end();
}

}  // namespace weft::kernels
