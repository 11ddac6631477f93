#include "kernels/scan/cpu/diagonal_scan.h"

#include "kernels/cpu/tasks.h"
#include "kernels/scan/cpu/isa/diagonal_scan.h"
#include "kernels/scan/cpu/isa/two_sided_scan.h"
#include "kernels/scan/cpu/scan_items.h"

namespace weft::kernels::cpu {
namespace {

const DiagonalTable& table_for(const Exec& exec, const DiagonalScan& in) {
  const Isa isa = isa_for(exec.isa, in.q.dtype);
  if (!nothing_in(in.value_log_decay)) return table_of<TwoSidedTable>(isa).scan;
  return table_of<DiagonalTable>(isa);
}

DiagonalTask task_of(const DiagonalScan& in, const ScanItem& item, ConstView initial_state) {
  const int64_t kv_head = item.head / (in.heads / in.kv_heads);
  return {.q = item.rows(in.q, in.key),
          .k = item.rows(in.k, kv_head, in.key),
          .v = item.rows(in.v, kv_head, in.value),
          .log_decay = item.rows(in.log_decay, kv_head, in.key),
          .bonus = numbers_of(in.bonus, item.head, in.key),
          .scale = in.scale,
          .initial_state = state_of(initial_state, item.state, in.key, in.value),
          .value_log_decay = item.rows(in.value_log_decay, kv_head, in.value)};
}

}  // namespace

void diagonal_scan_kept(Exec& exec, const DiagonalScan& in, int64_t& floats) {
  floats = kept_by_length(table_for(exec, in), in, {in.documents, in.heads}).floats();
}

void diagonal_scan_forward(Exec& exec, const DiagonalScan& in, ConstView initial_state, View out,
                           View final_state, View kept) {
  forward_heads(exec, table_for(exec, in), in, out, final_state, kept,
                [&](const ScanItem& item) { return task_of(in, item, initial_state); });
}

void diagonal_scan_backward(Exec& exec, const DiagonalScan& in, ConstView initial_state,
                            ConstView d_out, ConstView d_final_state,
                            const DiagonalScanGradients& gradients, ConstView kept) {
  const auto shared = [&](View to, int64_t width) {
    return SharedGradient(exec, to, in.heads, in.kv_heads, width);
  };
  const SharedGradient dk = shared(gradients.dk, in.key), dv = shared(gradients.dv, in.value),
                       dg = shared(gradients.d_log_decay, in.key),
                       dh = shared(gradients.d_value_log_decay, in.value);
  const bool has_bonus = !nothing_in(in.bonus);
  Tensor d_bonus;  // of every document, added up in order
  if (has_bonus) d_bonus = exec.scratch({documents_of(in), in.heads * in.key});

  const DiagonalTable& table = table_for(exec, in);
  const ScanItems items(in.documents, in.heads);
  const KeptOffsets offsets = kept_by_length(table, in, items);
  items.run(exec, table.backward_scratch(items.longest(), in.key, in.value),
            [&](const ScanItem& item, float* scratch) {
              const int64_t key = in.key, value = in.value;
              table.backward(
                  task_of(in, item, initial_state),
                  {.d_out = item.rows(d_out, value),
                   .d_final_state = state_of(d_final_state, item.state, key, value),
                   .dq = item.rows(gradients.dq, key),
                   .dk = item.rows(dk.view, key),
                   .dv = item.rows(dv.view, value),
                   .d_log_decay = item.rows(dg.view, key),
                   .d_bonus = numbers_of(d_bonus.view(), item.state, key),
                   .d_initial_state = state_of(gradients.d_initial_state, item.state, key, value),
                   .d_value_log_decay = item.rows(dh.view, value),
                   .kept = offsets.of(kept, item)},
                  scratch);
            });
  for (const SharedGradient* gradient : {&dk, &dv, &dg, &dh}) gradient->sum(exec);
  if (has_bonus) add_partials(exec, d_bonus, host<float>(gradients.d_bonus));
}

}  // namespace weft::kernels::cpu
