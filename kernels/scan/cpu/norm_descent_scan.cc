#include "kernels/scan/cpu/norm_descent_scan.h"

#include "kernels/cpu/tasks.h"
#include "kernels/scan/cpu/isa/norm_descent_scan.h"
#include "kernels/scan/cpu/scan_items.h"

namespace weft::kernels::cpu {
namespace {

// The inner model of an item, or its anchor.
NormDescentState model_of(const NormDescentScan& in, const ScanItem& item, ConstView m,
                          ConstView n) {
  if (!given(m)) return {};
  return {state_of(m, item.state, in.width, in.width), numbers_of(n, item.state, in.width)};
}
NormDescentStateOut model_of(const NormDescentScan& in, const ScanItem& item, View m, View n) {
  if (!given(m)) return {};
  return {state_of(m, item.state, in.width, in.width), numbers_of(n, item.state, in.width)};
}

NormDescentTask task_of(const NormDescentScan& in, const ScanItem& item,
                        const NormDescentStates& entering) {
  return {.q = item.rows(in.q, in.width),
          .k = item.rows(in.k, in.width),
          .v = item.rows(in.v, in.width),
          .eta = item.column(in.eta),
          .w = numbers_of(in.w, item.head, in.width),
          .c = numbers_of(in.c, item.head, in.width),
          .before = in.before[static_cast<size_t>(item.document)],
          .mini_batch = in.mini_batch,
          .scale = in.scale,
          .epsilon = in.epsilon,
          .state = model_of(in, item, entering.m, entering.n),
          .anchor = model_of(in, item, entering.anchor_m, entering.anchor_n)};
}

KeptOffsets kept_offsets(const NormDescentTable& table, const NormDescentScan& in,
                         const ScanItems& items) {
  return {in.kName, items, [&](const ScanItem& item) {
            return table.kept(item.tokens.count, in.mini_batch, in.width);
          }};
}

}  // namespace

void norm_descent_scan_kept(Exec& exec, const NormDescentScan& in, int64_t& floats) {
  const NormDescentTable& table = table_of<NormDescentTable>(exec.isa);
  floats = kept_offsets(table, in, {in.documents, in.heads}).floats();
}

void norm_descent_scan_forward(Exec& exec, const NormDescentScan& in,
                               const NormDescentStates& entering, View out,
                               const NormDescentStatesOut& leaving, View kept) {
  const NormDescentTable& table = table_of<NormDescentTable>(exec.isa);
  const ScanItems items(in.documents, in.heads);
  const KeptOffsets offsets = kept_offsets(table, in, items);
  items.run(exec, table.forward_scratch(in.width), [&](const ScanItem& item, float* scratch) {
    table.forward(task_of(in, item, entering),
                  {.out = item.rows(out, in.width),
                   .state = model_of(in, item, leaving.m, leaving.n),
                   .anchor = model_of(in, item, leaving.anchor_m, leaving.anchor_n),
                   .kept = offsets.of(kept, item)},
                  scratch);
  });
}

void norm_descent_scan_backward(Exec& exec, const NormDescentScan& in,
                                const NormDescentStates& entering, ConstView d_out,
                                const NormDescentStates& d_leaving,
                                const NormDescentGradients& gradients, ConstView kept) {
  const NormDescentTable& table = table_of<NormDescentTable>(exec.isa);
  const ScanItems items(in.documents, in.heads);
  const KeptOffsets offsets = kept_offsets(table, in, items);
  // Sums of every document, added up in order.
  const Tensor d_w = exec.scratch({documents_of(in), in.heads * in.width});
  const Tensor d_c = exec.scratch(d_w.shape());
  items.run(exec, table.backward_scratch(items.longest(), in.mini_batch, in.width),
            [&](const ScanItem& item, float* scratch) {
              const NormDescentGradients& g = gradients;
              table.backward(
                  task_of(in, item, entering),
                  {.d_out = item.rows(d_out, in.width),
                   .d_state = model_of(in, item, d_leaving.m, d_leaving.n),
                   .d_anchor = model_of(in, item, d_leaving.anchor_m, d_leaving.anchor_n),
                   .dq = item.rows(g.dq, in.width),
                   .dk = item.rows(g.dk, in.width),
                   .dv = item.rows(g.dv, in.width),
                   .d_eta = item.column(g.d_eta),
                   .d_w = numbers_of(d_w.view(), item.state, in.width),
                   .d_c = numbers_of(d_c.view(), item.state, in.width),
                   .state = model_of(in, item, g.entering.m, g.entering.n),
                   .anchor = model_of(in, item, g.entering.anchor_m, g.entering.anchor_n),
                   .kept = offsets.of(kept, item)},
                  scratch);
            });
  add_partials(exec, d_w, host<float>(gradients.d_w));
  add_partials(exec, d_c, host<float>(gradients.d_c));
}

}  // namespace weft::kernels::cpu
