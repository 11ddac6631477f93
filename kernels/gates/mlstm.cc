#include "kernels/gates/mlstm.h"

#include <algorithm>

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/mlstm.h"

namespace weft::kernels {
namespace {

template <class V>
void check_f32(const V& x, int64_t rows, int64_t width, const char* name) {
  check_matrix(x, rows, width, name);
  WEFT_CHECK(x.dtype == DType::kF32, "{} is {}, not f32", name, name_of(x.dtype));
}

void check_gates(const MlstmGates& g) {
  check_f32(g.i, g.i.rows(), g.i.width(), "mlstm: i");
  check_f32(g.f, g.i.rows(), g.i.width(), "mlstm: f");
  WEFT_CHECK(!g.documents.empty() && g.documents.front() == 0 && g.documents.back() == g.i.rows() &&
                 std::is_sorted(g.documents.begin(), g.documents.end()),
             "mlstm: document offsets must rise from 0 to {} tokens", g.i.rows());
}

// [documents, heads]; null when not given.
template <class V>
auto state_of(const MlstmGates& g, const V& x, const char* name) {
  using Float = decltype(host<float>(x));
  const auto count = (static_cast<int64_t>(g.documents.size()) - 1) * g.i.width();
  return given(x) ? vector_of<float>(x, count, name) : Float{nullptr};
}

// task(document as rows, index of its state)
template <class Task>
void for_documents(Exec& exec, const MlstmGates& g, Task task) {
  const int64_t heads = g.i.width();
  const float* entering = state_of(g, g.entering, "mlstm: entering");
  exec.threads.run(static_cast<int64_t>(g.documents.size()) - 1, [&](int64_t d) {
    const int64_t at = d * heads;
    task(MlstmDocument{rows_of(g.i), rows_of(g.f), entering == nullptr ? nullptr : entering + at,
                       g.documents[d], g.documents[d + 1], heads, g.split},
         at);
  });
}

template <class Float>
Float* advanced(Float* p, int64_t count) {
  return p == nullptr ? nullptr : p + count;
}

MlstmReadRows read_rows(const MlstmRead& in) {
  const int64_t rows = in.m.rows(), heads = in.m.width();
  check_f32(in.m, rows, heads, "mlstm: m");
  check_f32(in.rest, rows, heads, "mlstm: rest");
  check_f32(in.wide, rows, in.wide.width(), "mlstm: wide");
  WEFT_CHECK(heads > 0 && in.wide.width() % heads == 0, "mlstm: {} wide channels, {} heads",
             in.wide.width(), heads);
  return {rows_of(in.wide),
          rows_of(in.rest),
          rows_of(in.m),
          {},
          {},
          {},
          {},
          {},
          heads,
          in.wide.width() / heads - 1,
          kMlstmEpsilon};
}

}  // namespace

void mlstm_gates_forward(Exec& exec, const MlstmGates& gates, View log_decay, View rest, View m) {
  check_gates(gates);
  const int64_t count = gates.i.shape.elements();
  float* g = vector_of<float>(log_decay, count, "mlstm: log_decay");
  float* r = vector_of<float>(rest, count, "mlstm: rest");
  float* to = vector_of<float>(m, count, "mlstm: m");
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_documents(exec, gates,
                [&](const MlstmDocument& d, int64_t) { table.gates_forward(d, g, r, to); });
}

void mlstm_gates_backward(Exec& exec, const MlstmGates& gates, const MlstmGatesBackward& b) {
  check_gates(gates);
  const int64_t rows = gates.i.rows(), heads = gates.i.width(), count = rows * heads;
  check_f32(b.di, rows, heads, "mlstm: di");
  check_f32(b.df, rows, heads, "mlstm: df");
  const MlstmDocumentBack all{vector_of<float>(b.m, count, "mlstm: m"),
                              vector_of<float>(b.d_log_decay, count, "mlstm: d_log_decay"),
                              vector_of<float>(b.d_rest, count, "mlstm: d_rest"),
                              vector_of<float>(b.dm, count, "mlstm: dm"),
                              state_of(gates, b.d_leaving_rest, "mlstm: d_leaving_rest"),
                              state_of(gates, b.d_leaving_m, "mlstm: d_leaving_m"),
                              rows_of(b.di),
                              rows_of(b.df),
                              state_of(gates, b.d_entering, "mlstm: d_entering")};
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_documents(exec, gates, [&](const MlstmDocument& d, int64_t at) {
    MlstmDocumentBack one = all;
    one.d_leaving_rest = advanced(all.d_leaving_rest, at);
    one.d_leaving_m = advanced(all.d_leaving_m, at);
    one.d_entering = advanced(all.d_entering, at);
    table.gates_backward(d, one);
  });
}

void mlstm_keys(Exec& exec, ConstView k, ConstView i, ConstView rest, View keys) {
  if (nothing_in(k)) return;
  check_real(k, "mlstm: k");
  const int64_t heads = i.width();
  check_f32(i, k.rows(), heads, "mlstm: i");
  check_f32(rest, k.rows(), heads, "mlstm: rest");
  check_matrix(keys, k.rows(), k.width(), "mlstm: keys");
  WEFT_CHECK(heads > 0 && k.width() % heads == 0, "mlstm: {} channels, {} heads", k.width(), heads);
  const MlstmKeyRows args{rows_of(k),    rows_of(i), rows_of(rest),
                          rows_of(keys), heads,      k.width() / heads};
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_blocks(exec, row_blocks(k.rows(), k.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.keys(args, begin, end); });
}

void mlstm_read_forward(Exec& exec, const MlstmRead& in, View out) {
  if (nothing_in(in.wide)) return;
  MlstmReadRows args = read_rows(in);
  check_matrix(out, in.wide.rows(), args.heads * args.width, "mlstm: out");
  args.out = rows_of(out);
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_blocks(exec, row_blocks(in.wide.rows(), in.wide.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.read_forward(args, begin, end); });
}

void mlstm_read_backward(Exec& exec, const MlstmRead& in, ConstView d_out, View d_wide, View d_rest,
                         View dm) {
  if (nothing_in(in.wide)) return;
  MlstmReadRows args = read_rows(in);
  const int64_t rows = in.wide.rows();
  check_matrix(d_out, rows, args.heads * args.width, "mlstm: d_out");
  check_f32(d_wide, rows, in.wide.width(), "mlstm: d_wide");
  check_f32(d_rest, rows, args.heads, "mlstm: d_rest");
  check_f32(dm, rows, args.heads, "mlstm: dm");
  args.d_out = rows_of(d_out), args.d_wide = rows_of(d_wide);
  args.d_rest = rows_of(d_rest), args.dm = rows_of(dm);
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, in.wide.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.read_backward(args, begin, end); });
}

void center_heads(Exec& exec, int64_t heads, ConstView x, View y) {
  if (nothing_in(x)) return;
  check_real(x, "center_heads: x");
  check_matrix(y, x.rows(), x.width(), "center_heads: y");
  WEFT_CHECK(heads > 0 && x.width() % heads == 0, "center_heads: {} channels, {} heads", x.width(),
             heads);
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.center(rows_of(x), rows_of(y), heads, x.width() / heads, {begin, end, 0, x.width()});
  });
}

}  // namespace weft::kernels
