#include "kernels/gates/cpu/activation.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/activation.h"

namespace weft::kernels::cpu {

void activation_forward(Exec& exec, Activation f, ConstView x, View y) {
  const ActivationTable& table = table_of<ActivationTable>(exec.isa);
  const Pointwise args{f, rows_of(x), {}, rows_of(y)};
  for_tiles(exec, common_extent(x, y), [&](const Box& box) { table.forward(args, box); });
}

void activation_backward(Exec& exec, Activation f, ConstView x, ConstView dy, View dx) {
  const ActivationTable& table = table_of<ActivationTable>(exec.isa);
  const Pointwise args{f, rows_of(x), rows_of(dy), rows_of(dx)};
  for_tiles(exec, common_extent(x, dy, dx), [&](const Box& box) { table.backward(args, box); });
}

}  // namespace weft::kernels::cpu
