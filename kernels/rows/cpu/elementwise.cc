#include "kernels/rows/cpu/elementwise.h"

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/elementwise.h"

namespace weft::kernels::cpu {

void copy(Exec& exec, ConstView x, View y) {
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const Elementwise args{rows_of(x), {}, rows_of(y), 1.0f};
  for_tiles(exec, common_extent(x, y), [&](const Box& box) { table.copy(args, box); });
}

void add(Exec& exec, ConstView a, ConstView b, View y) {
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const Elementwise args{rows_of(a), rows_of(b), rows_of(y), 1.0f};
  for_tiles(exec, common_extent(a, b, y), [&](const Box& box) { table.add(args, box); });
}

void scale(Exec& exec, ConstView x, float factor, View y) {
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const Elementwise args{rows_of(x), {}, rows_of(y), factor};
  for_tiles(exec, common_extent(x, y), [&](const Box& box) { table.scale(args, box); });
}

void shift_scale(Exec& exec, ConstView x, float offset, float factor, View y) {
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const Elementwise args{rows_of(x), {}, rows_of(y), factor, offset};
  for_tiles(exec, common_extent(x, y), [&](const Box& box) { table.shift_scale(args, box); });
}

void fill(Exec& exec, View y, float value) {
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const Elementwise args{{}, {}, rows_of(y), value};
  for_tiles(exec, common_extent(y), [&](const Box& box) { table.fill(args, box); });
}

void add_bias(Exec& exec, ConstView bias, View y) {
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const AddBias args{host<float>(bias), rows_of(y)};
  for_tiles(exec, {y.rows(), y.width()}, [&](const Box& box) { table.add_bias(args, box); });
}

}  // namespace weft::kernels::cpu
