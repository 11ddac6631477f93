#include "kernels/scan/cpu/delta_scan.h"

#include "kernels/scan/cpu/isa/delta_scan.h"
#include "kernels/scan/cpu/scan_items.h"

namespace weft::kernels::cpu {
namespace {

const DeltaTable& table_for(const Exec& exec, const DeltaScan& in) {
  return table_of<DeltaTable>(isa_for(exec.isa, in.q.dtype));
}

DeltaTask task_of(const DeltaScan& in, const ScanItem& item, ConstView initial_state) {
  const int64_t qk_head = item.head / (in.heads / in.qk_heads);
  return {.q = item.rows(in.q, qk_head, in.key),
          .k = item.rows(in.k, qk_head, in.key),
          .v = item.rows(in.v, in.value),
          .beta = item.column(in.beta),
          .log_decay = item.column(in.log_decay),
          .scale = in.scale,
          .initial_state = state_of(initial_state, item.state, in.key, in.value)};
}

}  // namespace

void delta_scan_kept(Exec& exec, const DeltaScan& in, int64_t& floats) {
  floats = kept_by_length(table_for(exec, in), in, {in.documents, in.heads}).floats();
}

void delta_scan_forward(Exec& exec, const DeltaScan& in, ConstView initial_state, View out,
                        View final_state, View kept) {
  forward_heads(exec, table_for(exec, in), in, out, final_state, kept,
                [&](const ScanItem& item) { return task_of(in, item, initial_state); });
}

void delta_scan_backward(Exec& exec, const DeltaScan& in, ConstView initial_state, ConstView d_out,
                         ConstView d_final_state, const DeltaScanGradients& gradients,
                         ConstView kept) {
  const SharedGradient dq(exec, gradients.dq, in.heads, in.qk_heads, in.key);
  const SharedGradient dk(exec, gradients.dk, in.heads, in.qk_heads, in.key);
  const DeltaTable& table = table_for(exec, in);
  const ScanItems items(in.documents, in.heads);
  const KeptOffsets offsets = kept_by_length(table, in, items);
  items.run(exec, table.backward_scratch(items.longest(), in.key, in.value),
            [&](const ScanItem& item, float* scratch) {
              const int64_t key = in.key, value = in.value;
              table.backward(
                  task_of(in, item, initial_state),
                  {.d_out = item.rows(d_out, value),
                   .d_final_state = state_of(d_final_state, item.state, key, value),
                   .dq = item.rows(dq.view, key),
                   .dk = item.rows(dk.view, key),
                   .dv = item.rows(gradients.dv, value),
                   .d_beta = item.column(gradients.d_beta),
                   .d_log_decay = item.column(gradients.d_log_decay),
                   .d_initial_state = state_of(gradients.d_initial_state, item.state, key, value),
                   .kept = offsets.of(kept, item)},
                  scratch);
            });
  dq.sum(exec);
  dk.sum(exec);
}

}  // namespace weft::kernels::cpu
