#include "kernels/scan/momentum_scan.h"

#include <algorithm>

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/scan/cpu/isa/momentum_scan.h"
#include "kernels/scan/scan_checks.h"
#include "kernels/tile/heads.h"
#include "kernels/tile/kept.h"

namespace weft::kernels {
namespace {

int64_t keys(const MomentumScan& in) { return in.heads * in.key; }
int64_t values(const MomentumScan& in) { return in.heads * in.value; }
int64_t heads(const MomentumScan& in) { return in.heads; }
constexpr ScanField<MomentumScan> kFields[] = {
    {"q", &MomentumScan::q, &MomentumScanGradients::dq, keys, FieldType::kReal},
    {"k", &MomentumScan::k, &MomentumScanGradients::dk, keys, FieldType::kReal},
    {"v", &MomentumScan::v, &MomentumScanGradients::dv, values, FieldType::kReal},
    {"theta", &MomentumScan::theta, &MomentumScanGradients::d_theta, heads, FieldType::kF32},
    {"alpha", &MomentumScan::alpha, &MomentumScanGradients::d_alpha, heads, FieldType::kF32,
     Presence::kOptional},
    {"eta", &MomentumScan::eta, &MomentumScanGradients::d_eta, heads, FieldType::kF32,
     Presence::kOptional},
};

template <class States>
void check_states(const MomentumScan& in, const States& states, const char* name) {
  for (const ConstView& state :
       {ConstView(states.m), ConstView(states.s), ConstView(states.anchor)})
    check_state(in.kName, name, state, documents_of(in) * in.heads * in.key * in.value);
}

void check_output(const MomentumScan& in, const char* name, ConstView x) {
  check_field({in.kName, "", name, in.q.rows(), values(in), FieldType::kReal, FieldRows::kTokens,
               in.q.dtype},
              x);
}

void check_scan(const MomentumScan& in) {
  check_inputs(in);
  WEFT_CHECK(in.mini_batch > 0, "momentum_scan: mini-batches of {}", in.mini_batch);
  WEFT_CHECK(in.documents.size() == in.before.size() + 1,
             "momentum_scan: {} offsets of documents, {} beginnings", in.documents.size(),
             in.before.size());
}

// One head of one document.
struct Item {
  int64_t index, document, head;
  tile::Tokens tokens;

  Item(const MomentumScan& in, int64_t index)
      : index(index), document(index / in.heads), head(index % in.heads) {
    const auto d = static_cast<size_t>(document);
    tokens = {in.documents[d], in.documents[d + 1] - in.documents[d]};
  }

  template <class V>
  auto rows(const V& x, int64_t width) const {
    auto view = tile::head_of(x, tokens, head, width);
    view.rows = tokens.count, view.columns = width;  // also where there are no tokens
    return view;
  }
  template <class V>
  auto column(const V& x) const {
    return tile::column_of(x, tokens, head);
  }
  template <class To, class V>
  To state(const MomentumScan& in, const V& states) const {
    if (!given(states)) return {};
    return {host<float>(states) + index * in.key * in.value, in.value, in.key, in.value,
            DType::kF32};
  }
  MomentumStatesIn states(const MomentumScan& in, const MomentumStates& s) const {
    return {state<tile::In>(in, s.m), state<tile::In>(in, s.s), state<tile::In>(in, s.anchor)};
  }
  MomentumStatesTo states(const MomentumScan& in, const MomentumStatesOut& s) const {
    return {state<tile::Out>(in, s.m), state<tile::Out>(in, s.s), state<tile::Out>(in, s.anchor)};
  }
};

MomentumTask task_of(const MomentumScan& in, const MomentumStates& entering, const Item& item) {
  return {.q = item.rows(in.q, in.key),
          .k = item.rows(in.k, in.key),
          .v = item.rows(in.v, in.value),
          .theta = item.column(in.theta),
          .alpha = item.column(in.alpha),
          .eta = item.column(in.eta),
          .before = in.before[static_cast<size_t>(item.document)],
          .mini_batch = in.mini_batch,
          .scale = in.scale,
          .entering = item.states(in, entering)};
}

tile::KeptOffsets kept_offsets(const MomentumTable& table, const MomentumScan& in) {
  return tile::KeptOffsets("momentum_scan", documents_of(in) * in.heads,
                           [&](int64_t i) { return table.kept(task_of(in, {}, Item(in, i))); });
}

template <class Task>
void for_items(Exec& exec, const MomentumScan& in, int64_t scratch_floats, Task task) {
  const int64_t floats = (scratch_floats + 15) / 16 * 16;
  const Tensor scratch = exec.scratch({exec.threads.size(), floats});
  exec.threads.run_on(documents_of(in) * in.heads, [&](int64_t index, int thread) {
    task(Item(in, index), host<float>(scratch) + thread * floats);
  });
}

int64_t longest(const MomentumScan& in) {
  int64_t tokens = 0;
  for (size_t d = 0; d + 1 < in.documents.size(); ++d) {
    tokens = std::max<int64_t>(tokens, in.documents[d + 1] - in.documents[d]);
  }
  return tokens;
}

}  // namespace

std::span<const ScanField<MomentumScan>> MomentumScan::fields() { return kFields; }

int64_t momentum_scan_kept(Exec& exec, const MomentumScan& in) {
  return kept_offsets(table_of<MomentumTable>(exec.isa), in).floats();
}

void momentum_scan_forward(Exec& exec, const MomentumScan& in, const MomentumStates& entering,
                           View out, const MomentumStatesOut& leaving, View kept) {
  check_scan(in);
  check_states(in, entering, "an entering state");
  check_states(in, leaving, "a leaving state");
  if (given(out)) check_output(in, "out", out);
  const MomentumTable& table = table_of<MomentumTable>(exec.isa);
  const tile::KeptOffsets offsets = kept_offsets(table, in);
  for_items(
      exec, in, table.forward_scratch(in.key, in.value), [&](const Item& item, float* scratch) {
        table.forward(
            task_of(in, entering, item),
            {item.rows(out, in.value), item.states(in, leaving), offsets.of(kept, item.index)},
            scratch);
      });
}

void momentum_scan_backward(Exec& exec, const MomentumScan& in, const MomentumStates& entering,
                            ConstView d_out, const MomentumStates& d_leaving,
                            const MomentumScanGradients& g, ConstView kept) {
  check_scan(in);
  check_states(in, entering, "an entering state");
  check_states(in, d_leaving, "the gradient of a leaving state");
  check_states(in, g.entering, "the gradient of an entering state");
  check_output(in, "d_out", d_out);
  check_gradients(in, g);
  const MomentumTable& table = table_of<MomentumTable>(exec.isa);
  const tile::KeptOffsets offsets = kept_offsets(table, in);
  for_items(exec, in, table.backward_scratch(longest(in), in.key, in.value),
            [&](const Item& item, float* scratch) {
              table.backward(
                  task_of(in, entering, item),
                  {item.rows(d_out, in.value), item.states(in, d_leaving), item.rows(g.dq, in.key),
                   item.rows(g.dk, in.key), item.rows(g.dv, in.value), item.column(g.d_theta),
                   item.column(g.d_alpha), item.column(g.d_eta), item.states(in, g.entering),
                   offsets.of(kept, item.index)},
                  scratch);
            });
}

}  // namespace weft::kernels
