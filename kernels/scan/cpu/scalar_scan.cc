#include "kernels/scan/cpu/scalar_scan.h"

#include <cmath>
#include <vector>

#include "kernels/scan/cpu/isa/scalar_scan.h"
#include "kernels/scan/cpu/scan_items.h"

// Long documents are cut into pieces where there is little else to do at the same time: first every
// piece gives what it does to a state, then the states between pieces are chained, and then all
// pieces run at once.
namespace weft::kernels::cpu {
namespace {

const ScanTable& table_for(const Exec& exec, const ScalarScan& in) {
  return table_of<ScanTable>(isa_for(exec.isa, in.q.dtype));
}

ScanItems items_of(const ScalarScan& in) {
  return {in.documents, in.heads, LongDocuments::kInPieces};
}

ScanTask task_of(const ScalarScan& in, const ScanItem& item) {
  const ScalarHeads n = heads_of(in);
  const auto shared = [&](int64_t heads) { return item.head / (in.heads / heads); };
  ScanTask task{.q = item.rows(in.q, shared(n.q), in.key),
                .k = item.rows(in.k, shared(n.k), in.key),
                .v = item.rows(in.v, shared(n.v), in.value),
                .log_decay = item.column(in.log_decay),
                .scale = in.scale,
                .initial_state = {}};
  const bool one = given(in.log_decay) && in.log_decay.shape.dims() == 1;  // for all tokens
  if (one) task.log_decay = {host<float>(in.log_decay) + item.head, 0};
  return task;
}

// Effect of every piece on a state that starts from zero, in the direction of time or, with d_out,
// on its gradient in the other: states f32 [items, key, value], and the log decay over each.
enum class Direction : uint8_t { kForward, kBackward };
struct PieceUpdates {
  Tensor states;
  std::vector<float> totals;
};
PieceUpdates piece_updates(Exec& exec, const ScalarScan& in, const ScanItems& items,
                           ConstView d_out) {
  const ScanTable& table = table_for(exec, in);
  PieceUpdates updates{exec.scratch({items.count(), in.key, in.value}),
                       std::vector<float>(static_cast<size_t>(items.count()))};
  items.run(exec, table.forward_scratch(in.key, in.value),
            [&](const ScanItem& item, float* scratch) {
              const tile::Out state = state_of(updates.states.view(), item.index, in.key, in.value);
              const ScanTask task = task_of(in, item);
              updates.totals[static_cast<size_t>(item.index)] =
                  nothing_in(d_out)
                      ? table.summarize(task, state, scratch)
                      : table.summarize_back(task, item.rows(d_out, in.value), state, scratch);
            });
  return updates;
}

// visit(item, whether it is the first of its document in this direction)
template <class Visit>
void for_pieces(const ScanItems& items, Direction direction, Visit visit) {
  const bool forward = direction == Direction::kForward;
  for (int64_t n = 0; n < items.count(); ++n) {
    const ScanItem& item = items[forward ? n : items.count() - 1 - n];
    visit(item, forward ? item.first : item.last);
  }
}

// The state before every piece (backward: behind it), from `outer` at the borders of documents:
// takes the place of the updates.
void chain(const ScalarScan& in, const ScanItems& items, Direction direction, ConstView outer,
           const PieceUpdates& updates) {
  const int64_t size = in.key * in.value;
  std::vector<float> state(static_cast<size_t>(size));
  for_pieces(items, direction, [&](const ScanItem& item, bool starts) {
    if (starts) {
      const tile::In start = state_of(outer, item.state, in.key, in.value);
      const auto* from = static_cast<const float*>(start.data);
      for (int64_t j = 0; j < size; ++j) state[j] = start.empty() ? 0.0f : from[j];
    }
    const float decay = std::exp(updates.totals[static_cast<size_t>(item.index)]);
    float* piece = host<float>(updates.states) + item.index * size;
    for (int64_t j = 0; j < size; ++j) {
      const float before = state[j];
      state[j] = decay * before + piece[j];
      piece[j] = before;
    }
  });
}

// States at the borders of pieces, which take the place of those of documents. Undefined, and not
// needed, where no document is cut.
Tensor states_of_pieces(Exec& exec, const ScalarScan& in, const ScanItems& items, ConstView d_out,
                        ConstView outer) {
  if (!items.in_pieces()) return {};
  const PieceUpdates updates = piece_updates(exec, in, items, d_out);
  chain(in, items, nothing_in(d_out) ? Direction::kForward : Direction::kBackward, outer, updates);
  return updates.states;
}
tile::In state_at(const ScalarScan& in, const ScanItem& item, const Tensor& of_pieces,
                  ConstView of_documents) {
  const bool pieces = of_pieces.defined();
  return state_of(pieces ? ConstView(of_pieces) : of_documents, pieces ? item.index : item.state,
                  in.key, in.value);
}

// Updates of the pieces of a document as the update of the document.
void fold(const ScalarScan& in, const ScanItems& items, Direction direction,
          const PieceUpdates& updates, View update, View total) {
  const int64_t size = in.key * in.value;
  for_pieces(items, direction, [&](const ScanItem& item, bool starts) {
    const float log_decay = updates.totals[static_cast<size_t>(item.index)];
    float* to = host<float>(update) + item.state * size;
    const float* piece = host<float>(updates.states) + item.index * size;
    const float decay = std::exp(log_decay);
    for (int64_t j = 0; j < size; ++j) to[j] = starts ? piece[j] : decay * to[j] + piece[j];
    if (nothing_in(total)) return;
    float& sum = host<float>(total)[item.state];
    sum = starts ? log_decay : sum + log_decay;
  });
}

}  // namespace

void scalar_scan_kept(Exec& exec, const ScalarScan& in, int64_t& floats) {
  floats = kept_by_length(table_for(exec, in), in, items_of(in)).floats();
}

void scalar_scan_forward(Exec& exec, const ScalarScan& in, ConstView initial_state, View out,
                         View final_state, View kept) {
  const ScanTable& table = table_for(exec, in);
  const ScanItems items = items_of(in);
  const Tensor before = states_of_pieces(exec, in, items, {}, initial_state);
  const KeptOffsets offsets = kept_by_length(table, in, items);
  items.run(exec, table.forward_scratch(in.key, in.value),
            [&](const ScanItem& item, float* scratch) {
              ScanTask task = task_of(in, item);
              task.initial_state = state_at(in, item, before, initial_state);
              ScanOutputs outputs{item.rows(out, in.value), {}, offsets.of(kept, item)};
              if (item.last)
                outputs.final_state = state_of(final_state, item.state, in.key, in.value);
              table.forward(task, outputs, scratch);
            });
}

void scalar_scan_backward(Exec& exec, const ScalarScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const ScalarScanGradients& gradients, ConstView kept) {
  const ScalarHeads n = heads_of(in);
  const SharedGradient dq(exec, gradients.dq, in.heads, n.q, in.key),
      dk(exec, gradients.dk, in.heads, n.k, in.key),
      dv(exec, gradients.dv, in.heads, n.v, in.value);
  const ScanTable& table = table_for(exec, in);
  const ScanItems items = items_of(in);
  const Tensor before = states_of_pieces(exec, in, items, {}, initial_state);
  const Tensor d_behind = states_of_pieces(exec, in, items, d_out, d_final_state);
  const KeptOffsets offsets = kept_by_length(table, in, items);
  items.run(exec, table.backward_scratch(items.longest(), in.key, in.value),
            [&](const ScanItem& item, float* scratch) {
              ScanTask task = task_of(in, item);
              task.initial_state = state_at(in, item, before, initial_state);
              ScanGradients g{.d_out = item.rows(d_out, in.value),
                              .d_final_state = state_at(in, item, d_behind, d_final_state),
                              .dq = item.rows(dq.view, in.key),
                              .dk = item.rows(dk.view, in.key),
                              .dv = item.rows(dv.view, in.value),
                              .d_log_decay = item.column(gradients.d_log_decay),
                              .d_initial_state = {},
                              .kept = offsets.of(kept, item)};
              if (item.first) {
                g.d_initial_state =
                    state_of(gradients.d_initial_state, item.state, in.key, in.value);
              }
              table.backward(task, g, scratch);
            });
  for (const SharedGradient* shared : {&dq, &dk, &dv}) shared->sum(exec);
}

void scalar_scan_summary(Exec& exec, const ScalarScan& in, View update, View total) {
  const ScanItems items = items_of(in);
  const PieceUpdates updates = piece_updates(exec, in, items, {});
  fold(in, items, Direction::kForward, updates, update, total);
}

void scalar_scan_state_gradient(Exec& exec, const ScalarScan& in, ConstView d_out,
                                View d_initial_state) {
  const ScanItems items = items_of(in);
  const PieceUpdates updates = piece_updates(exec, in, items, d_out);
  fold(in, items, Direction::kBackward, updates, d_initial_state, {});
}

}  // namespace weft::kernels::cpu
