#include "kernels/mlstm.h"

#include <algorithm>

#include "kernels/cpu/mlstm.h"
#include "kernels/launch.h"

namespace weft::kernels {
namespace {

const MlstmTable& table_of(const Exec& exec) {
  return by_isa(exec.isa, [](auto isa) -> const MlstmTable& { return mlstm_table(isa); });
}

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
  using Float = decltype(x.template as<float>());
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
                       g.documents[d], g.documents[d + 1], heads},
         at);
  });
}

template <class Float>
Float* advanced(Float* p, int64_t count) {
  return p == nullptr ? nullptr : p + count;
}

MlstmKeyRows key_rows(ConstView k, ConstView i) {
  check_real(k, "mlstm: k");
  const int64_t heads = i.width();
  check_f32(i, k.rows(), heads, "mlstm: i");
  WEFT_CHECK(heads > 0 && k.width() % heads == 0, "mlstm: {} channels, {} heads", k.width(), heads);
  return {rows_of(k), rows_of(i), {}, {}, {}, {}, heads, k.width() / heads};
}

MlstmReadRows read_rows(ConstView wide, ConstView m) {
  const int64_t heads = m.width();
  check_f32(m, wide.rows(), heads, "mlstm: m");
  check_f32(wide, m.rows(), wide.width(), "mlstm: wide");
  WEFT_CHECK(heads > 0 && wide.width() % heads == 0, "mlstm: {} wide channels, {} heads",
             wide.width(), heads);
  return {rows_of(wide), rows_of(m), {}, {}, {}, {}, heads, wide.width() / heads - 1,
          kMlstmEpsilon};
}

}  // namespace

void mlstm_gates_forward(Exec& exec, const MlstmGates& gates, View log_decay, View m) {
  check_gates(gates);
  const int64_t count = gates.i.shape.elements();
  float* l = vector_of<float>(log_decay, count, "mlstm: log_decay");
  float* to = vector_of<float>(m, count, "mlstm: m");
  const MlstmTable& table = table_of(exec);
  for_documents(exec, gates,
                [&](const MlstmDocument& d, int64_t) { table.gates_forward(d, l, to); });
}

void mlstm_gates_backward(Exec& exec, const MlstmGates& gates, const MlstmGatesBackward& b) {
  check_gates(gates);
  const int64_t rows = gates.i.rows(), heads = gates.i.width(), count = rows * heads;
  check_f32(b.di, rows, heads, "mlstm: di");
  check_f32(b.df, rows, heads, "mlstm: df");
  const MlstmDocumentBack all{vector_of<float>(b.log_decay, count, "mlstm: log_decay"),
                              vector_of<float>(b.m, count, "mlstm: m"),
                              vector_of<float>(b.d_log_decay, count, "mlstm: d_log_decay"),
                              vector_of<float>(b.dm, count, "mlstm: dm"),
                              state_of(gates, b.d_leaving, "mlstm: d_leaving"),
                              rows_of(b.di),
                              rows_of(b.df),
                              state_of(gates, b.d_entering, "mlstm: d_entering")};
  const MlstmTable& table = table_of(exec);
  for_documents(exec, gates, [&](const MlstmDocument& d, int64_t at) {
    MlstmDocumentBack one = all;
    one.d_leaving = advanced(all.d_leaving, at), one.d_entering = advanced(all.d_entering, at);
    table.gates_backward(d, one);
  });
}

void mlstm_keys_forward(Exec& exec, ConstView k, ConstView i, View keys) {
  if (nothing_in(k)) return;
  MlstmKeyRows args = key_rows(k, i);
  check_matrix(keys, k.rows(), k.width(), "mlstm: keys");
  args.keys = rows_of(keys);
  const MlstmTable& table = table_of(exec);
  for_blocks(exec, row_blocks(k.rows(), k.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.keys_forward(args, begin, end); });
}

void mlstm_keys_backward(Exec& exec, ConstView keys, ConstView i, ConstView d_keys, View dk,
                         View di) {
  if (nothing_in(keys)) return;
  MlstmKeyRows args = key_rows(keys, i);
  check_matrix(d_keys, keys.rows(), keys.width(), "mlstm: d_keys");
  check_matrix(dk, keys.rows(), keys.width(), "mlstm: dk");
  check_f32(di, keys.rows(), args.heads, "mlstm: di");
  args.d_keys = rows_of(d_keys), args.dk = rows_of(dk), args.di = rows_of(di);
  const MlstmTable& table = table_of(exec);
  for_blocks(exec, row_blocks(keys.rows(), keys.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.keys_backward(args, begin, end); });
}

void mlstm_read_forward(Exec& exec, ConstView wide, ConstView m, View out) {
  if (nothing_in(wide)) return;
  MlstmReadRows args = read_rows(wide, m);
  check_matrix(out, wide.rows(), args.heads * args.width, "mlstm: out");
  args.out = rows_of(out);
  const MlstmTable& table = table_of(exec);
  for_blocks(exec, row_blocks(wide.rows(), wide.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.read_forward(args, begin, end); });
}

void mlstm_read_backward(Exec& exec, ConstView wide, ConstView m, ConstView d_out, View d_wide,
                         View dm) {
  if (nothing_in(wide)) return;
  MlstmReadRows args = read_rows(wide, m);
  check_matrix(d_out, wide.rows(), args.heads * args.width, "mlstm: d_out");
  check_f32(d_wide, wide.rows(), wide.width(), "mlstm: d_wide");
  check_f32(dm, wide.rows(), args.heads, "mlstm: dm");
  args.d_out = rows_of(d_out), args.d_wide = rows_of(d_wide), args.dm = rows_of(dm);
  const MlstmTable& table = table_of(exec);
  for_blocks(exec, row_blocks(wide.rows(), wide.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.read_backward(args, begin, end); });
}

void center_heads(Exec& exec, int64_t heads, ConstView x, View y) {
  if (nothing_in(x)) return;
  check_real(x, "center_heads: x");
  check_matrix(y, x.rows(), x.width(), "center_heads: y");
  WEFT_CHECK(heads > 0 && x.width() % heads == 0, "center_heads: {} channels, {} heads", x.width(),
             heads);
  const MlstmTable& table = table_of(exec);
  for_blocks(exec, row_blocks(x.rows(), x.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.center(rows_of(x), rows_of(y), heads, x.width() / heads, {begin, end, 0, x.width()});
  });
}

}  // namespace weft::kernels
