#include "kernels/gates/activation.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/activation.h"

namespace weft::kernels {
namespace {}  // namespace

void activation_forward(Exec& exec, Activation f, ConstView x, View y) {
  const Extent extent = common_extent("activation", x, y);
  const ActivationTable& table = table_of<ActivationTable>(exec.isa);
  const Pointwise args{f, rows_of(x), {}, rows_of(y)};
  for_tiles(exec, extent, [&](const Box& box) { table.forward(args, box); });
}

void activation_backward(Exec& exec, Activation f, ConstView x, ConstView dy, View dx) {
  const Extent extent = common_extent("activation", x, dy, dx);
  const ActivationTable& table = table_of<ActivationTable>(exec.isa);
  const Pointwise args{f, rows_of(x), rows_of(dy), rows_of(dx)};
  for_tiles(exec, extent, [&](const Box& box) { table.backward(args, box); });
}

void swiglu_forward(Exec& exec, ConstView gate_up, ConstView scale, View h) {
  const int64_t rows = h.rows(), width = h.width();
  if (nothing_in(h)) return;
  check_real(h, "swiglu: h");
  check_matrix(gate_up, rows, 2 * width, "swiglu: gate_up");
  const Swiglu args{
      rows_of(gate_up), {},   optional_vector<float>(scale, rows, "swiglu: scale"), rows_of(h), {},
      nullptr,          width};
  const ActivationTable& table = table_of<ActivationTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.swiglu_forward(args, begin, end); });
}

void swiglu_backward(Exec& exec, ConstView gate_up, ConstView scale, ConstView dh, View d_gate_up,
                     View d_scale, View h) {
  const int64_t rows = dh.rows(), width = dh.width();
  if (nothing_in(dh)) return;
  check_real(dh, "swiglu: dh");
  check_matrix(gate_up, rows, 2 * width, "swiglu: gate_up");
  check_matrix(d_gate_up, rows, 2 * width, "swiglu: d_gate_up");
  if (given(h)) check_matrix(h, rows, width, "swiglu: h");
  WEFT_CHECK(given(d_scale) || !given(scale), "swiglu: a scale, but no place for its gradient");
  float* sums = given(d_scale) ? vector_of<float>(d_scale, rows, "swiglu: d_scale") : nullptr;
  const Swiglu args{rows_of(gate_up),
                    rows_of(dh),
                    optional_vector<float>(scale, rows, "swiglu: scale"),
                    rows_of(h),
                    rows_of(d_gate_up),
                    sums,
                    width};
  const ActivationTable& table = table_of<ActivationTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.swiglu_backward(args, begin, end); });
}

}  // namespace weft::kernels
