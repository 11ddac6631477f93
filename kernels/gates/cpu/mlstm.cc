#include "kernels/gates/cpu/mlstm.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/mlstm.h"

namespace weft::kernels::cpu {
namespace {

template <class Float>
Float* advanced(Float* p, int64_t count) {
  return p == nullptr ? nullptr : p + count;
}

// task(document as rows, index of its state)
template <class Task>
void for_documents(Exec& exec, const MlstmGates& g, Task task) {
  const int64_t heads = g.i.width();
  const float* entering = host<float>(g.entering);
  exec.threads.run(static_cast<int64_t>(g.documents.size()) - 1, [&](int64_t d) {
    const int64_t at = d * heads;
    task(MlstmDocument{rows_of(g.i), rows_of(g.f), advanced(entering, at), g.documents[d],
                       g.documents[d + 1], heads, g.split},
         at);
  });
}

MlstmReadRows read_rows(const MlstmRead& in) {
  const int64_t heads = in.m.width();
  MlstmReadRows args{};
  args.wide = rows_of(in.wide);
  args.rest = rows_of(in.rest);
  args.m = rows_of(in.m);
  args.heads = heads;
  args.width = in.wide.width() / heads - 1;
  args.epsilon = kMlstmEpsilon;
  return args;
}

}  // namespace

void mlstm_gates_forward(Exec& exec, const MlstmGates& gates, View log_decay, View rest, View m) {
  float* g = host<float>(log_decay);
  float* r = host<float>(rest);
  float* to = host<float>(m);
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_documents(exec, gates,
                [&](const MlstmDocument& d, int64_t) { table.gates_forward(d, g, r, to); });
}

void mlstm_gates_backward(Exec& exec, const MlstmGates& gates, const MlstmGatesBackward& b) {
  const MlstmDocumentBack all{host<float>(b.m),
                              host<float>(b.d_log_decay),
                              host<float>(b.d_rest),
                              host<float>(b.dm),
                              host<float>(b.d_leaving_rest),
                              host<float>(b.d_leaving_m),
                              rows_of(b.di),
                              rows_of(b.df),
                              host<float>(b.d_entering)};
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
  const MlstmKeyRows args{rows_of(k),    rows_of(i), rows_of(rest),
                          rows_of(keys), i.width(),  k.width() / i.width()};
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_blocks(exec, row_blocks(k.rows(), k.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.keys(args, begin, end); });
}

void mlstm_read_forward(Exec& exec, const MlstmRead& in, View out) {
  MlstmReadRows args = read_rows(in);
  args.out = rows_of(out);
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_blocks(exec, row_blocks(in.wide.rows(), in.wide.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.read_forward(args, begin, end); });
}

void mlstm_read_backward(Exec& exec, const MlstmRead& in, ConstView d_out, View d_wide, View d_rest,
                         View dm) {
  MlstmReadRows args = read_rows(in);
  args.d_out = rows_of(d_out), args.d_wide = rows_of(d_wide);
  args.d_rest = rows_of(d_rest), args.dm = rows_of(dm);
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_blocks(exec, row_blocks(in.wide.rows(), in.wide.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.read_backward(args, begin, end); });
}

void center_heads(Exec& exec, int64_t heads, ConstView x, View y) {
  const MlstmTable& table = table_of<MlstmTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.center(rows_of(x), rows_of(y), heads, x.width() / heads, {begin, end, 0, x.width()});
  });
}

}  // namespace weft::kernels::cpu
