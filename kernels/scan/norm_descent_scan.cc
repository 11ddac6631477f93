#include "kernels/scan/norm_descent_scan.h"

#include <algorithm>

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/scan/cpu/isa/norm_descent_scan.h"
#include "kernels/scan/scan_checks.h"
#include "kernels/tile/heads.h"
#include "kernels/tile/kept.h"

namespace weft::kernels {
namespace {

int64_t width(const NormDescentScan& in) { return in.heads * in.width; }
int64_t heads(const NormDescentScan& in) { return in.heads; }
constexpr ScanField<NormDescentScan> kFields[] = {
    {"q", &NormDescentScan::q, &NormDescentGradients::dq, width, FieldType::kReal},
    {"k", &NormDescentScan::k, &NormDescentGradients::dk, width, FieldType::kReal},
    {"v", &NormDescentScan::v, &NormDescentGradients::dv, width, FieldType::kReal},
    {"eta", &NormDescentScan::eta, &NormDescentGradients::d_eta, heads, FieldType::kF32},
    {"w", &NormDescentScan::w, &NormDescentGradients::d_w, width, FieldType::kF32,
     Presence::kAlways, FieldRows::kNone},
    {"c", &NormDescentScan::c, &NormDescentGradients::d_c, width, FieldType::kF32,
     Presence::kAlways, FieldRows::kNone},
};

template <class States>
void check_states(const NormDescentScan& in, const States& states, const char* name) {
  const int64_t rows = documents_of(in) * width(in);
  check_state(in.kName, name, states.m, rows * in.width);
  check_state(in.kName, name, states.n, rows);
  check_state(in.kName, name, states.anchor_m, rows * in.width);
  check_state(in.kName, name, states.anchor_n, rows);
  WEFT_CHECK(given(states.m) == given(states.n) && given(states.anchor_m) == given(states.anchor_n),
             "norm_descent_scan: {} has one half only", name);
}

void check_output(const NormDescentScan& in, const char* name, ConstView x) {
  check_field({in.kName, "", name, in.q.rows(), width(in), FieldType::kReal, FieldRows::kTokens,
               in.q.dtype},
              x);
}

void check_scan(const NormDescentScan& in) {
  check_inputs(in);
  WEFT_CHECK(in.mini_batch > 0, "norm_descent_scan: mini-batches of {}", in.mini_batch);
  WEFT_CHECK(in.documents.size() == in.before.size() + 1,
             "norm_descent_scan: {} offsets of documents, {} beginnings", in.documents.size(),
             in.before.size());
}

// One head of one document.
struct Item {
  int64_t index, document, head;
  tile::Tokens tokens;

  Item(const NormDescentScan& in, int64_t index)
      : index(index), document(index / in.heads), head(index % in.heads) {
    const auto d = static_cast<size_t>(document);
    tokens = {in.documents[d], in.documents[d + 1] - in.documents[d]};
  }

  template <class V>
  auto rows(const NormDescentScan& in, const V& x) const {
    auto view = tile::head_of(x, tokens, head, in.width);
    view.rows = tokens.count, view.columns = in.width;  // also where there are no tokens
    return view;
  }
};

tile::InVector numbers_of(const ConstView& x, int64_t index, int64_t width) {
  if (!given(x)) return {};
  return {host<float>(x) + index * width, 1};
}
tile::OutVector numbers_of(const View& x, int64_t index, int64_t width) {
  if (!given(x)) return {};
  return {host<float>(x) + index * width, 1};
}

template <class State, class Matrix, class V>
State state_of(const NormDescentScan& in, const V& m, const V& n, const Item& item) {
  if (!given(m)) return {};
  Matrix matrix{host<float>(m) + item.index * in.width * in.width, in.width, in.width, in.width,
                DType::kF32};
  return {matrix, numbers_of(n, item.index, in.width)};
}
NormDescentState entering_of(const NormDescentScan& in, ConstView m, ConstView n,
                             const Item& item) {
  return state_of<NormDescentState, tile::In>(in, m, n, item);
}
NormDescentStateOut leaving_of(const NormDescentScan& in, View m, View n, const Item& item) {
  return state_of<NormDescentStateOut, tile::Out>(in, m, n, item);
}

NormDescentTask task_of(const NormDescentScan& in, const NormDescentStates& entering,
                        const Item& item) {
  return {.q = item.rows(in, in.q),
          .k = item.rows(in, in.k),
          .v = item.rows(in, in.v),
          .eta = tile::column_of(in.eta, item.tokens, item.head),
          .w = numbers_of(in.w, item.head, in.width),
          .c = numbers_of(in.c, item.head, in.width),
          .before = in.before[static_cast<size_t>(item.document)],
          .mini_batch = in.mini_batch,
          .scale = in.scale,
          .epsilon = in.epsilon,
          .state = entering_of(in, entering.m, entering.n, item),
          .anchor = entering_of(in, entering.anchor_m, entering.anchor_n, item)};
}

tile::KeptOffsets kept_offsets(const NormDescentTable& table, const NormDescentScan& in) {
  return tile::KeptOffsets("norm_descent_scan", documents_of(in) * in.heads, [&](int64_t i) {
    return table.kept(Item(in, i).tokens.count, in.mini_batch, in.width);
  });
}

template <class Task>
void for_items(Exec& exec, const NormDescentScan& in, int64_t scratch_floats, Task task) {
  const int64_t floats = (scratch_floats + 15) / 16 * 16;
  const Tensor scratch = exec.scratch({exec.threads.size(), floats});
  exec.threads.run_on(documents_of(in) * in.heads, [&](int64_t index, int thread) {
    task(Item(in, index), host<float>(scratch) + thread * floats);
  });
}

int64_t longest(const NormDescentScan& in) {
  int64_t tokens = 0;
  for (size_t d = 0; d + 1 < in.documents.size(); ++d) {
    tokens = std::max<int64_t>(tokens, in.documents[d + 1] - in.documents[d]);
  }
  return tokens;
}

// to [heads, width] += sums of the documents, in order.
void add_documents(const NormDescentScan& in, const Tensor& sums, const View& to) {
  float* into = host<float>(to);
  const int64_t width = in.heads * in.width;
  for (int64_t d = 0; d < documents_of(in); ++d) {
    const float* from = host<float>(sums) + d * width;
    for (int64_t i = 0; i < width; ++i) into[i] += from[i];
  }
}

}  // namespace

std::span<const ScanField<NormDescentScan>> NormDescentScan::fields() { return kFields; }

int64_t norm_descent_scan_kept(Exec& exec, const NormDescentScan& in) {
  return kept_offsets(table_of<NormDescentTable>(exec.isa), in).floats();
}

void norm_descent_scan_forward(Exec& exec, const NormDescentScan& in,
                               const NormDescentStates& entering, View out,
                               const NormDescentStatesOut& leaving, View kept) {
  check_scan(in);
  check_states(in, entering, "an entering state");
  check_states(in, leaving, "a leaving state");
  check_output(in, "out", out);
  const NormDescentTable& table = table_of<NormDescentTable>(exec.isa);
  const tile::KeptOffsets offsets = kept_offsets(table, in);
  for_items(exec, in, table.forward_scratch(in.width), [&](const Item& item, float* scratch) {
    table.forward(
        task_of(in, entering, item),
        {item.rows(in, out), leaving_of(in, leaving.m, leaving.n, item),
         leaving_of(in, leaving.anchor_m, leaving.anchor_n, item), offsets.of(kept, item.index)},
        scratch);
  });
}

void norm_descent_scan_backward(Exec& exec, const NormDescentScan& in,
                                const NormDescentStates& entering, ConstView d_out,
                                const NormDescentStates& d_leaving, const NormDescentGradients& g,
                                ConstView kept) {
  check_scan(in);
  check_states(in, entering, "an entering state");
  check_states(in, d_leaving, "the gradient of a leaving state");
  check_states(in, g.entering, "the gradient of an entering state");
  const int64_t width = in.heads * in.width;
  check_output(in, "d_out", d_out);
  check_gradients(in, g);
  const NormDescentTable& table = table_of<NormDescentTable>(exec.isa);
  const tile::KeptOffsets offsets = kept_offsets(table, in);
  const Tensor d_w = exec.scratch({documents_of(in), width}),
               d_c = exec.scratch({documents_of(in), width});
  for_items(exec, in, table.backward_scratch(longest(in), in.mini_batch, in.width),
            [&](const Item& item, float* scratch) {
              table.backward(task_of(in, entering, item),
                             {item.rows(in, d_out), entering_of(in, d_leaving.m, d_leaving.n, item),
                              entering_of(in, d_leaving.anchor_m, d_leaving.anchor_n, item),
                              item.rows(in, g.dq), item.rows(in, g.dk), item.rows(in, g.dv),
                              tile::column_of(g.d_eta, item.tokens, item.head),
                              numbers_of(d_w.view(), item.index, in.width),
                              numbers_of(d_c.view(), item.index, in.width),
                              leaving_of(in, g.entering.m, g.entering.n, item),
                              leaving_of(in, g.entering.anchor_m, g.entering.anchor_n, item),
                              offsets.of(kept, item.index)},
                             scratch);
            });
  add_documents(in, d_w, g.d_w);
  add_documents(in, d_c, g.d_c);
}

}  // namespace weft::kernels
