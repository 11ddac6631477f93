#include "kernels/scan/diagonal_scan.h"

#include <algorithm>

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/scan/cpu/isa/diagonal_scan.h"
#include "kernels/scan/cpu/isa/two_sided_scan.h"
#include "kernels/scan/scan_checks.h"
#include "kernels/tile/heads.h"
#include "kernels/tile/kept.h"

namespace weft::kernels {
namespace {

int64_t queries(const DiagonalScan& in) { return in.heads * in.key; }
int64_t keys(const DiagonalScan& in) { return in.kv_heads * in.key; }
int64_t values(const DiagonalScan& in) { return in.kv_heads * in.value; }
constexpr ScanField<DiagonalScan> kFields[] = {
    {"q", &DiagonalScan::q, &DiagonalScanGradients::dq, queries},
    {"k", &DiagonalScan::k, &DiagonalScanGradients::dk, keys},
    {"v", &DiagonalScan::v, &DiagonalScanGradients::dv, values},
    {"log_decay", &DiagonalScan::log_decay, &DiagonalScanGradients::d_log_decay, keys,
     FieldType::kF32, Presence::kOptional},
    {"bonus", &DiagonalScan::bonus, &DiagonalScanGradients::d_bonus, queries, FieldType::kF32,
     Presence::kOptional, FieldRows::kNone},
    {"value_log_decay", &DiagonalScan::value_log_decay, &DiagonalScanGradients::d_value_log_decay,
     values, FieldType::kF32, Presence::kOptional},
};

const DiagonalTable& scan_table(const Exec& exec, const DiagonalScan& in) {
  const Isa isa = isa_for(exec.isa, in.q.dtype);
  if (!tile::absent(in.value_log_decay)) return table_of<TwoSidedTable>(isa).scan;
  return table_of<DiagonalTable>(isa);
}

void check_scan(const DiagonalScan& in) {
  check_head_counts(in.kName, in.heads, in.kv_heads, in.key, in.value);
  check_inputs(in);
  if (in.q.rows() == 0) return;  // decays may be missing then
  const bool two_sided = given(in.value_log_decay);
  WEFT_CHECK(two_sided || given(in.log_decay), "diagonal_scan: no decays are given");
  WEFT_CHECK(!two_sided || !given(in.bonus),
             "diagonal_scan: a bonus with decays of value channels");
}

// One head of one document.
struct Item {
  int64_t document, head;
  tile::Tokens tokens;
};

Item item_at(const DiagonalScan& in, int64_t index) {
  const int64_t document = index / in.heads, begin = in.documents[document];
  return {document, index % in.heads, {begin, in.documents[document + 1] - begin}};
}

template <class To, class From>
To state_of(const DiagonalScan& in, const From& states, int64_t index) {
  if (tile::absent(states)) return {};
  return {host<float>(states) + index * in.key * in.value, in.value, in.key, in.value, DType::kF32};
}

DiagonalTask task_of(const DiagonalScan& in, const Item& item, ConstView initial_state) {
  const int64_t kv_head = item.head / (in.heads / in.kv_heads);
  DiagonalTask task;
  task.q = tile::head_of(in.q, item.tokens, item.head, in.key);
  task.k = tile::head_of(in.k, item.tokens, kv_head, in.key);
  task.v = tile::head_of(in.v, item.tokens, kv_head, in.value);
  task.log_decay = tile::head_of(in.log_decay, item.tokens, kv_head, in.key);
  task.value_log_decay = tile::head_of(in.value_log_decay, item.tokens, kv_head, in.value);
  task.q.rows = item.tokens.count, task.q.columns = in.key, task.v.columns = in.value;
  task.scale = in.scale;
  if (!tile::absent(in.bonus)) task.bonus = {host<float>(in.bonus) + item.head * in.key, 1};
  task.initial_state = state_of<tile::In>(in, initial_state, item.document * in.heads + item.head);
  return task;
}

// Runs task(index, scratch of the thread) for every head of every document.
template <class Task>
void for_items(Exec& exec, const DiagonalScan& in, int64_t scratch_floats, Task task) {
  const int64_t floats = (scratch_floats + 15) / 16 * 16;
  const Tensor scratch = exec.scratch({exec.threads.size(), floats});
  exec.threads.run_on(documents_of(in) * in.heads, [&](int64_t index, int thread) {
    task(index, host<float>(scratch) + thread * floats);
  });
}

tile::KeptOffsets kept_offsets(const DiagonalTable& table, const DiagonalScan& in) {
  return {in.kName, documents_of(in) * in.heads,
          [&](int64_t i) { return table.kept(item_at(in, i).tokens.count, in.key, in.value); }};
}

int64_t longest_document(const DiagonalScan& in) {
  int64_t tokens = 0;
  for (int64_t d = 0; d < documents_of(in); ++d) {
    tokens = std::max<int64_t>(tokens, in.documents[d + 1] - in.documents[d]);
  }
  return tokens;
}

// Heads of a group write their own gradients of what they share, which are then added up in order.
struct HeadGradients {
  HeadGradients(Exec& exec, const DiagonalScan& in, const DiagonalScanGradients& g)
      : dk(g.dk), dv(g.dv), dg(g.d_log_decay), dh(g.d_value_log_decay) {
    if (in.heads == in.kv_heads) return;
    const int64_t tokens = in.q.rows();
    k = exec.scratch({tokens, in.heads * in.key}), dk = k.view();
    v = exec.scratch({tokens, in.heads * in.value}), dv = v.view();
    if (!tile::absent(g.d_log_decay)) {
      decay = exec.scratch({tokens, in.heads * in.key}), dg = decay.view();
    }
    if (!tile::absent(g.d_value_log_decay)) {
      value_decay = exec.scratch({tokens, in.heads * in.value}), dh = value_decay.view();
    }
  }
  void sum_into(Exec& exec, const DiagonalScan& in, const DiagonalScanGradients& g) const {
    const int64_t group = in.heads / in.kv_heads;
    if (group == 1) return;
    tile::sum_groups(exec, dk, g.dk, group, in.key);
    tile::sum_groups(exec, dv, g.dv, group, in.value);
    if (decay.defined()) tile::sum_groups(exec, dg, g.d_log_decay, group, in.key);
    if (value_decay.defined()) tile::sum_groups(exec, dh, g.d_value_log_decay, group, in.value);
  }

  Tensor k, v, decay, value_decay;
  View dk, dv, dg, dh;
};

}  // namespace

std::span<const ScanField<DiagonalScan>> DiagonalScan::fields() { return kFields; }

int64_t diagonal_scan_kept(Exec& exec, const DiagonalScan& in) {
  return kept_offsets(scan_table(exec, in), in).floats();
}

void diagonal_scan_forward(Exec& exec, const DiagonalScan& in, ConstView initial_state, View out,
                           View final_state, View kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_state(in, "final_state", final_state);
  if (!tile::absent(out)) check_head_output(in, "out", out);
  const DiagonalTable& table = scan_table(exec, in);
  const tile::KeptOffsets offsets = kept_offsets(table, in);
  for_items(exec, in, table.forward_scratch(in.key, in.value), [&](int64_t i, float* scratch) {
    const Item item = item_at(in, i);
    table.forward(task_of(in, item, initial_state),
                  {tile::head_of(out, item.tokens, item.head, in.value),
                   state_of<tile::Out>(in, final_state, i), offsets.of(kept, i)},
                  scratch);
  });
}

void diagonal_scan_backward(Exec& exec, const DiagonalScan& in, ConstView initial_state,
                            ConstView d_out, ConstView d_final_state,
                            const DiagonalScanGradients& gradients, ConstView kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_gradients(in, d_out, d_final_state, gradients);
  const DiagonalTable& table = scan_table(exec, in);
  const tile::KeptOffsets offsets = kept_offsets(table, in);
  const HeadGradients heads(exec, in, gradients);
  const bool has_bonus = !tile::absent(in.bonus);
  Tensor d_bonus;  // of every document, added up in order
  if (has_bonus) d_bonus = exec.scratch({documents_of(in), in.heads * in.key});

  const int64_t floats = table.backward_scratch(longest_document(in), in.key, in.value);
  for_items(exec, in, floats, [&](int64_t i, float* scratch) {
    const Item item = item_at(in, i);
    DiagonalGradients g{tile::head_of(d_out, item.tokens, item.head, in.value),
                        state_of<tile::In>(in, d_final_state, i),
                        tile::head_of(gradients.dq, item.tokens, item.head, in.key),
                        tile::head_of(heads.dk, item.tokens, item.head, in.key),
                        tile::head_of(heads.dv, item.tokens, item.head, in.value),
                        tile::head_of(heads.dg, item.tokens, item.head, in.key),
                        {},
                        state_of<tile::Out>(in, gradients.d_initial_state, i),
                        tile::head_of(heads.dh, item.tokens, item.head, in.value),
                        offsets.of(kept, i)};
    if (has_bonus) g.d_bonus = {host<float>(d_bonus) + i * in.key, 1};
    table.backward(task_of(in, item, initial_state), g, scratch);
  });
  heads.sum_into(exec, in, gradients);
  if (has_bonus) add_partials(exec, d_bonus, host<float>(gradients.d_bonus));
}

}  // namespace weft::kernels
