#include "kernels/gates/cpu/decay_gate.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/decay_gate.h"

namespace weft::kernels::cpu {

void decay_gate_forward(Exec& exec, const DecayGate& gate, ConstView z, View g) {
  const DecayGateTable& table = table_of<DecayGateTable>(exec.isa);
  const DecayGateRows args{gate, rows_of(z), {}, rows_of(g)};
  for_tiles(exec, common_extent(z, g), [&](const Box& box) { table.forward(args, box); });
}

void decay_gate_backward(Exec& exec, const DecayGate& gate, ConstView z, ConstView dg, View dz) {
  const DecayGateTable& table = table_of<DecayGateTable>(exec.isa);
  const DecayGateRows args{gate, rows_of(z), rows_of(dg), rows_of(dz)};
  for_tiles(exec, common_extent(z, dg, dz), [&](const Box& box) { table.backward(args, box); });
}

void tied_gates_forward(Exec& exec, ConstView f, ConstView lower, View g, View k) {
  const int64_t width = f.width();
  const TiedGatesRows args{rows_of(f), {},         {}, host<float>(lower),
                           rows_of(g), rows_of(k), {}, width};
  const DecayGateTable& table = table_of<DecayGateTable>(exec.isa);
  for_blocks(exec, row_blocks(f.rows(), width),
             [&](int64_t, int64_t begin, int64_t end) { table.tied_forward(args, begin, end); });
}

void tied_gates_backward(Exec& exec, const TiedGatesBackward& in) {
  const int64_t width = in.f.width();
  const TiedGatesRows args{
      rows_of(in.f),  rows_of(in.dg), rows_of(in.dk), host<float>(in.lower), {}, {},
      rows_of(in.df), width};
  const DecayGateTable& table = table_of<DecayGateTable>(exec.isa);
  const RowBlocks blocks = sum_blocks(in.f.rows(), width);
  Tensor partial;
  if (given(in.lower)) partial = exec.scratch({blocks.count(), width});
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    float* sums = partial.defined() ? host<float>(partial) + b * width : nullptr;
    table.tied_backward(args, begin, end, sums);
  });
  if (partial.defined()) add_partials(exec, partial, host<float>(in.d_lower));
}

}  // namespace weft::kernels::cpu
