#include "kernels/gates/decay_gate.h"

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/decay_gate.h"

namespace weft::kernels {
namespace {

void check_log_decay(ConstView g, std::string_view name) {
  WEFT_CHECK(g.dtype == DType::kF32, "{} is {}, not f32", name, name_of(g.dtype));
}

const float* lower_of(ConstView lower, int64_t width) {
  return given(lower) ? vector_of<float>(lower, width, "tied_gates: lower") : nullptr;
}

}  // namespace

void decay_gate_forward(Exec& exec, const DecayGate& gate, ConstView z, View g) {
  check_log_decay(g, "decay_gate: g");
  const Extent extent = common_extent("decay_gate", z, g);
  const DecayGateTable& table = table_of<DecayGateTable>(exec.isa);
  const DecayGateRows args{gate, rows_of(z), {}, rows_of(g)};
  for_tiles(exec, extent, [&](const Box& box) { table.forward(args, box); });
}

void decay_gate_backward(Exec& exec, const DecayGate& gate, ConstView z, ConstView dg, View dz) {
  check_log_decay(dg, "decay_gate: dg");
  const Extent extent = common_extent("decay_gate", z, dg, dz);
  const DecayGateTable& table = table_of<DecayGateTable>(exec.isa);
  const DecayGateRows args{gate, rows_of(z), rows_of(dg), rows_of(dz)};
  for_tiles(exec, extent, [&](const Box& box) { table.backward(args, box); });
}

void tied_gates_forward(Exec& exec, ConstView f, ConstView lower, View g, View k) {
  const int64_t rows = f.rows(), width = f.width();
  if (nothing_in(f)) return;
  check_log_decay(g, "tied_gates: g");
  check_matrix(g, rows, width, "tied_gates: g");
  check_matrix(k, rows, width, "tied_gates: k");
  const TiedGatesRows args{rows_of(f), {},         {}, lower_of(lower, width),
                           rows_of(g), rows_of(k), {}, width};
  const DecayGateTable& table = table_of<DecayGateTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.tied_forward(args, begin, end); });
}

void tied_gates_backward(Exec& exec, const TiedGatesBackward& in) {
  const int64_t rows = in.f.rows(), width = in.f.width();
  if (nothing_in(in.f)) return;
  check_log_decay(in.dg, "tied_gates: dg");
  check_matrix(in.dg, rows, width, "tied_gates: dg");
  check_matrix(in.dk, rows, width, "tied_gates: dk");
  check_matrix(in.df, rows, width, "tied_gates: df");
  WEFT_CHECK(given(in.lower) == given(in.d_lower),
             "tied_gates: d_lower is wanted exactly when there is a lower bound");
  const TiedGatesRows args{
      rows_of(in.f),  rows_of(in.dg), rows_of(in.dk), lower_of(in.lower, width), {}, {},
      rows_of(in.df), width};
  const DecayGateTable& table = table_of<DecayGateTable>(exec.isa);
  const RowBlocks blocks = sum_blocks(rows, width);
  Tensor partial;
  if (given(in.lower)) partial = exec.scratch({blocks.count(), width});
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    float* sums = partial.defined() ? host<float>(partial) + b * width : nullptr;
    table.tied_backward(args, begin, end, sums);
  });
  if (given(in.lower)) {
    add_partials(exec, partial, vector_of<float>(in.d_lower, width, "tied_gates: d_lower"));
  }
}

}  // namespace weft::kernels
