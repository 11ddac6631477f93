#include "kernels/scan/cpu/momentum_scan.h"

#include "kernels/scan/cpu/isa/momentum_scan.h"
#include "kernels/scan/cpu/scan_items.h"

namespace weft::kernels::cpu {
namespace {

MomentumStatesIn states_of(const MomentumScan& in, const ScanItem& item, const MomentumStates& s) {
  const auto of = [&](ConstView x) { return state_of(x, item.state, in.key, in.value); };
  return {of(s.m), of(s.s), of(s.anchor)};
}
MomentumStatesTo states_of(const MomentumScan& in, const ScanItem& item,
                           const MomentumStatesOut& s) {
  const auto of = [&](View x) { return state_of(x, item.state, in.key, in.value); };
  return {of(s.m), of(s.s), of(s.anchor)};
}

MomentumTask task_of(const MomentumScan& in, const ScanItem& item, const MomentumStates& entering) {
  return {.q = item.rows(in.q, in.key),
          .k = item.rows(in.k, in.key),
          .v = item.rows(in.v, in.value),
          .theta = item.column(in.theta),
          .alpha = item.column(in.alpha),
          .eta = item.column(in.eta),
          .before = in.before[static_cast<size_t>(item.document)],
          .mini_batch = in.mini_batch,
          .scale = in.scale,
          .entering = states_of(in, item, entering)};
}

KeptOffsets kept_offsets(const MomentumTable& table, const MomentumScan& in,
                         const ScanItems& items) {
  return {in.kName, items, [&](const ScanItem& item) { return table.kept(task_of(in, item, {})); }};
}

}  // namespace

void momentum_scan_kept(Exec& exec, const MomentumScan& in, int64_t& floats) {
  const MomentumTable& table = table_of<MomentumTable>(exec.isa);
  floats = kept_offsets(table, in, {in.documents, in.heads}).floats();
}

void momentum_scan_forward(Exec& exec, const MomentumScan& in, const MomentumStates& entering,
                           View out, const MomentumStatesOut& leaving, View kept) {
  const MomentumTable& table = table_of<MomentumTable>(exec.isa);
  const ScanItems items(in.documents, in.heads);
  const KeptOffsets offsets = kept_offsets(table, in, items);
  items.run(exec, table.forward_scratch(in.key, in.value),
            [&](const ScanItem& item, float* scratch) {
              table.forward(task_of(in, item, entering),
                            {.out = item.rows(out, in.value),
                             .leaving = states_of(in, item, leaving),
                             .kept = offsets.of(kept, item)},
                            scratch);
            });
}

void momentum_scan_backward(Exec& exec, const MomentumScan& in, const MomentumStates& entering,
                            ConstView d_out, const MomentumStates& d_leaving,
                            const MomentumScanGradients& gradients, ConstView kept) {
  const MomentumTable& table = table_of<MomentumTable>(exec.isa);
  const ScanItems items(in.documents, in.heads);
  const KeptOffsets offsets = kept_offsets(table, in, items);
  items.run(exec, table.backward_scratch(items.longest(), in.key, in.value),
            [&](const ScanItem& item, float* scratch) {
              const MomentumScanGradients& g = gradients;
              table.backward(task_of(in, item, entering),
                             {.d_out = item.rows(d_out, in.value),
                              .d_leaving = states_of(in, item, d_leaving),
                              .dq = item.rows(g.dq, in.key),
                              .dk = item.rows(g.dk, in.key),
                              .dv = item.rows(g.dv, in.value),
                              .d_theta = item.column(g.d_theta),
                              .d_alpha = item.column(g.d_alpha),
                              .d_eta = item.column(g.d_eta),
                              .entering = states_of(in, item, g.entering),
                              .kept = offsets.of(kept, item)},
                             scratch);
            });
}

}  // namespace weft::kernels::cpu
