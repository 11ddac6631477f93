#include "kernels/scan/cpu/rank_one_scan.h"

#include "kernels/scan/cpu/isa/rank_one_scan.h"
#include "kernels/scan/cpu/scan_items.h"

namespace weft::kernels::cpu {
namespace {

bool is_delta(const RankOneScan& in) { return !given(in.alpha); }

const RankOneTable& table_for(const Exec& exec, const RankOneScan& in) {
  const RankOneTables& tables = table_of<RankOneTables>(isa_for(exec.isa, in.q.dtype));
  return is_delta(in) ? tables.delta : tables.general;
}

RankOneTask task_of(const RankOneScan& in, const ScanItem& item, ConstView initial_state) {
  RankOneTask task{.q = item.rows(in.q, in.key),
                   .k = item.rows(in.k, in.key),
                   .v = item.rows(in.v, in.value),
                   .log_decay = item.rows(in.log_decay, in.key),
                   .alpha = {},
                   .beta = {},
                   .strength = {},
                   .scale = in.scale,
                   .initial_state = state_of(initial_state, item.state, in.key, in.value)};
  if (is_delta(in)) {
    task.strength = item.column(in.beta);
  } else {
    task.alpha = item.rows(in.alpha, in.key), task.beta = item.rows(in.beta, in.key);
  }
  return task;
}

RankOneGradients gradients_of(const RankOneScan& in, const ScanItem& item, ConstView d_out,
                              ConstView d_final_state, const RankOneScanGradients& g) {
  RankOneGradients of;
  of.d_out = item.rows(d_out, in.value);
  of.d_final_state = state_of(d_final_state, item.state, in.key, in.value);
  of.dq = item.rows(g.dq, in.key), of.dk = item.rows(g.dk, in.key);
  of.dv = item.rows(g.dv, in.value);
  of.d_log_decay = item.rows(g.d_log_decay, in.key);
  if (is_delta(in)) {
    of.d_strength = item.column(g.d_beta);
  } else {
    of.d_alpha = item.rows(g.d_alpha, in.key), of.d_beta = item.rows(g.d_beta, in.key);
  }
  of.d_initial_state = state_of(g.d_initial_state, item.state, in.key, in.value);
  return of;
}

}  // namespace

void rank_one_scan_kept(Exec& exec, const RankOneScan& in, int64_t& floats) {
  floats = kept_by_length(table_for(exec, in), in, {in.documents, in.heads}).floats();
}

void rank_one_scan_forward(Exec& exec, const RankOneScan& in, ConstView initial_state, View out,
                           View final_state, View kept) {
  forward_heads(exec, table_for(exec, in), in, out, final_state, kept,
                [&](const ScanItem& item) { return task_of(in, item, initial_state); });
}

void rank_one_scan_backward(Exec& exec, const RankOneScan& in, ConstView initial_state,
                            ConstView d_out, ConstView d_final_state,
                            const RankOneScanGradients& gradients, ConstView kept) {
  const RankOneTable& table = table_for(exec, in);
  const ScanItems items(in.documents, in.heads);
  const KeptOffsets offsets = kept_by_length(table, in, items);
  items.run(exec, table.backward_scratch(items.longest(), in.key, in.value),
            [&](const ScanItem& item, float* scratch) {
              RankOneGradients g = gradients_of(in, item, d_out, d_final_state, gradients);
              g.kept = offsets.of(kept, item);
              table.backward(task_of(in, item, initial_state), g, scratch);
            });
}

}  // namespace weft::kernels::cpu
