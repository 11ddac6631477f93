#include "kernels/gates/mlstm.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/mlstm.h"

namespace weft::kernels {
namespace {

int64_t documents_of(const MlstmGates& g) { return static_cast<int64_t>(g.documents.size()) - 1; }

void check_gates(const MlstmGates& g) {
  check_f32(g.i, "mlstm: i");
  check_f32_matrix(g.f, g.i.rows(), g.i.width(), "mlstm: f");
  check_documents(g.documents, g.i.rows(), "mlstm");
  check_optional_numbers(g.entering, documents_of(g) * g.i.width(), "mlstm: entering");
}

void check_read(const MlstmRead& in) {
  const int64_t rows = in.m.rows(), heads = in.m.width();
  check_f32(in.m, "mlstm: m");
  check_f32_matrix(in.rest, rows, heads, "mlstm: rest");
  check_f32_matrix(in.wide, rows, in.wide.width(), "mlstm: wide");
  check_heads(in.wide.width(), heads, "mlstm: wide");
}
int64_t narrow_width(const MlstmRead& in) { return in.wide.width() - in.m.width(); }

}  // namespace

void mlstm_gates_forward(Exec& exec, const MlstmGates& gates, View log_decay, View rest, View m) {
  check_gates(gates);
  const int64_t count = gates.i.shape.elements();
  check_numbers(log_decay, count, "mlstm: log_decay");
  check_numbers(rest, count, "mlstm: rest");
  check_numbers(m, count, "mlstm: m");
  dispatch(exec,
           {.name = "mlstm_gates_forward",
            .flops = 14 * elements(gates.i),
            .read = bytes_of(gates.i, gates.f, gates.entering),
            .written = bytes_of(log_decay, rest, m)},
           cpu::mlstm_gates_forward, gates, log_decay, rest, m);
}

void mlstm_gates_backward(Exec& exec, const MlstmGates& gates, const MlstmGatesBackward& b) {
  check_gates(gates);
  const int64_t rows = gates.i.rows(), heads = gates.i.width(), count = rows * heads;
  const int64_t states = documents_of(gates) * heads;
  check_f32_matrix(b.di, rows, heads, "mlstm: di");
  check_f32_matrix(b.df, rows, heads, "mlstm: df");
  check_numbers(b.m, count, "mlstm: m");
  check_numbers(b.d_log_decay, count, "mlstm: d_log_decay");
  check_numbers(b.d_rest, count, "mlstm: d_rest");
  check_numbers(b.dm, count, "mlstm: dm");
  check_optional_numbers(b.d_leaving_rest, states, "mlstm: d_leaving_rest");
  check_optional_numbers(b.d_leaving_m, states, "mlstm: d_leaving_m");
  check_optional_numbers(b.d_entering, states, "mlstm: d_entering");
  dispatch(exec,
           {.name = "mlstm_gates_backward",
            .flops = 16 * elements(gates.i),
            .read = bytes_of(gates.i, gates.f, gates.entering, b.m, b.d_log_decay, b.d_rest, b.dm,
                             b.d_leaving_rest, b.d_leaving_m),
            .written = bytes_of(b.di, b.df, b.d_entering)},
           cpu::mlstm_gates_backward, gates, b);
}

void mlstm_keys(Exec& exec, ConstView k, ConstView i, ConstView rest, View keys) {
  if (nothing_in(k)) return;
  check_real(k, "mlstm: k");
  check_f32_matrix(i, k.rows(), i.width(), "mlstm: i");
  check_f32_matrix(rest, k.rows(), i.width(), "mlstm: rest");
  check_matrix(keys, k.rows(), k.width(), "mlstm: keys");
  check_heads(k.width(), i.width(), "mlstm: k");
  dispatch(exec,
           {.name = "mlstm_keys",
            .type = k.dtype,
            .flops = elements(k) + 2 * elements(i),
            .read = bytes_of(k, i, rest),
            .written = bytes_of(keys)},
           cpu::mlstm_keys, k, i, rest, keys);
}

void mlstm_read_forward(Exec& exec, const MlstmRead& in, View out) {
  if (nothing_in(in.wide)) return;
  check_read(in);
  check_matrix(out, in.wide.rows(), narrow_width(in), "mlstm: out");
  dispatch(exec,
           {.name = "mlstm_read_forward",
            .flops = elements(out) + 8 * elements(in.m),
            .read = bytes_of(in.wide, in.rest, in.m),
            .written = bytes_of(out)},
           cpu::mlstm_read_forward, in, out);
}

void mlstm_read_backward(Exec& exec, const MlstmRead& in, ConstView d_out, View d_wide, View d_rest,
                         View dm) {
  if (nothing_in(in.wide)) return;
  check_read(in);
  const int64_t rows = in.wide.rows(), heads = in.m.width();
  check_matrix(d_out, rows, narrow_width(in), "mlstm: d_out");
  check_f32_matrix(d_wide, rows, in.wide.width(), "mlstm: d_wide");
  check_f32_matrix(d_rest, rows, heads, "mlstm: d_rest");
  check_f32_matrix(dm, rows, heads, "mlstm: dm");
  dispatch(exec,
           {.name = "mlstm_read_backward",
            .flops = 3 * elements(d_out) + 16 * elements(in.m),
            .read = bytes_of(in.wide, in.rest, in.m, d_out),
            .written = bytes_of(d_wide, d_rest, dm)},
           cpu::mlstm_read_backward, in, d_out, d_wide, d_rest, dm);
}

void center_heads(Exec& exec, int64_t heads, ConstView x, View y) {
  if (nothing_in(x)) return;
  check_real(x, "center_heads: x");
  check_matrix(y, x.rows(), x.width(), "center_heads: y");
  check_heads(x.width(), heads, "center_heads");
  dispatch(exec,
           {.name = "center_heads",
            .type = x.dtype,
            .flops = 2 * elements(x),
            .read = bytes_of(x),
            .written = bytes_of(y)},
           cpu::center_heads, heads, x, y);
}

}  // namespace weft::kernels
