#include "kernels/rows/cpu/reductions.h"

#include <cstring>
#include <numeric>

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/elementwise.h"
#include "kernels/rows/cpu/isa/reductions.h"

namespace weft::kernels {

void add_partials(Exec& exec, const Tensor& partial, float* sum) {
  constexpr int64_t kColumns = 256;
  const ConstView view = partial;
  const int64_t width = view.width(), rows = view.rows();
  const ReductionTable& table = table_of<ReductionTable>(exec.isa);
  const int64_t pieces = (width + kColumns - 1) / kColumns;
  exec.threads.run(pieces, [&](int64_t i) {
    const int64_t left = i * kColumns, right = std::min(width, left + kColumns);
    table.add_rows(rows_of(view), {0, rows, left, right}, sum);
  });
}

namespace cpu {

void column_sum(Exec& exec, ConstView x, View sum) {
  const int64_t width = x.width();
  const ReductionTable& table = table_of<ReductionTable>(exec.isa);
  const RowBlocks blocks = sum_blocks(x.rows(), width);
  const Tensor partial = exec.scratch({blocks.count(), width});
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    float* mine = host<float>(partial) + b * width;
    std::memset(mine, 0, static_cast<size_t>(width) * sizeof(float));
    table.add_rows(rows_of(x), {begin, end, 0, width}, mine);
  });
  add_partials(exec, partial, host<float>(sum));
}

void column_mean(Exec& exec, ConstView x, View mean) {
  fill(exec, mean, 0.0f);
  if (x.empty()) return;
  column_sum(exec, x, mean);
  scale(exec, mean, 1.0f / static_cast<float>(x.rows()), mean);
}

// One by one: sums over tokens have the same bits however blocks of tokens are cut.
void add_sum(Exec&, ConstView x, View sum) {
  double& total = *host<double>(sum);
  for (int64_t i = 0; i < x.shape.elements(); ++i) total += host<float>(x)[i];
}

void sum_of_squares(Exec& exec, ConstView x, View sum) {
  const Tiles tiles(common_extent(x));
  const ReductionTable& table = table_of<ReductionTable>(exec.isa);
  const Tensor partial = exec.scratch({tiles.count()}, DType::kF64);
  double* sums = host<double>(partial);
  exec.threads.run(tiles.count(),
                   [&](int64_t i) { sums[i] = table.sum_of_squares(rows_of(x), tiles[i]); });
  *host<double>(sum) = std::accumulate(sums, sums + tiles.count(), 0.0);
}

}  // namespace cpu
}  // namespace weft::kernels
