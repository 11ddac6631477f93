#include "kernels/scan/delta_scan.h"

#include <algorithm>

#include "core/host_access.h"
#include "kernels/scan/cpu/isa/delta_scan.h"
#include "kernels/scan/scan_checks.h"
#include "kernels/tile/heads.h"
#include "kernels/tile/kept.h"

namespace weft::kernels {
namespace {

int64_t keys(const DeltaScan& in) { return in.qk_heads * in.key; }
int64_t values(const DeltaScan& in) { return in.heads * in.value; }
int64_t heads(const DeltaScan& in) { return in.heads; }
constexpr ScanField<DeltaScan> kFields[] = {
    {"q", &DeltaScan::q, &DeltaScanGradients::dq, keys},
    {"k", &DeltaScan::k, &DeltaScanGradients::dk, keys},
    {"v", &DeltaScan::v, &DeltaScanGradients::dv, values},
    {"beta", &DeltaScan::beta, &DeltaScanGradients::d_beta, heads, FieldType::kF32},
    {"log_decay", &DeltaScan::log_decay, &DeltaScanGradients::d_log_decay, heads, FieldType::kF32,
     Presence::kOptional},
};

void check_scan(const DeltaScan& in) {
  check_head_counts(in.kName, in.heads, in.qk_heads, in.key, in.value);
  check_inputs(in);
}

// One head of one document.
struct Item {
  int64_t index, head;  // index: of its state
  tile::Tokens tokens;
};
Item item_of(const DeltaScan& in, int64_t index) {
  const int64_t document = index / in.heads;
  const int64_t begin = in.documents[document];
  return {index, index % in.heads, {begin, in.documents[document + 1] - begin}};
}

// Runs task(item, scratch of the thread) for every head of every document.
template <class Task>
void for_items(Exec& exec, const DeltaScan& in, int64_t scratch_floats, Task task) {
  const int64_t floats = (scratch_floats + 15) / 16 * 16;
  const Tensor scratch = exec.scratch({exec.threads.size(), floats});
  exec.threads.run_on(documents_of(in) * in.heads, [&](int64_t index, int thread) {
    task(item_of(in, index), host<float>(scratch) + thread * floats);
  });
}

template <class To, class From>
To state_of(const DeltaScan& in, const From& states, const Item& item) {
  if (tile::absent(states)) return {};
  return {host<float>(states) + item.index * in.key * in.value, in.value, in.key, in.value,
          DType::kF32};
}

DeltaTask task_of(const DeltaScan& in, const Item& item, ConstView initial_state) {
  const int64_t qk_head = item.head / (in.heads / in.qk_heads);
  DeltaTask task;
  task.q = tile::head_of(in.q, item.tokens, qk_head, in.key);
  task.k = tile::head_of(in.k, item.tokens, qk_head, in.key);
  task.v = tile::head_of(in.v, item.tokens, item.head, in.value);
  task.q.rows = item.tokens.count, task.q.columns = in.key, task.v.columns = in.value;
  task.beta = tile::column_of(in.beta, item.tokens, item.head);
  task.log_decay = tile::column_of(in.log_decay, item.tokens, item.head);
  task.scale = in.scale;
  task.initial_state = state_of<tile::In>(in, initial_state, item);
  return task;
}

int64_t longest(const DeltaScan& in) {
  int64_t tokens = 0;
  for (int64_t d = 0; d < documents_of(in); ++d)
    tokens = std::max<int64_t>(tokens, in.documents[d + 1] - in.documents[d]);
  return tokens;
}

tile::KeptOffsets kept_offsets(const DeltaTable& table, const DeltaScan& in) {
  return tile::KeptOffsets("delta_scan", documents_of(in) * in.heads, [&](int64_t i) {
    return table.kept(item_of(in, i).tokens.count, in.key, in.value);
  });
}

}  // namespace

std::span<const ScanField<DeltaScan>> DeltaScan::fields() { return kFields; }

int64_t delta_scan_kept(Exec& exec, const DeltaScan& in) {
  return kept_offsets(table_of<DeltaTable>(isa_for(exec.isa, in.q.dtype)), in).floats();
}

void delta_scan_forward(Exec& exec, const DeltaScan& in, ConstView initial_state, View out,
                        View final_state, View kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_state(in, "final_state", final_state);
  if (!tile::absent(out)) check_head_output(in, "out", out);
  const DeltaTable& table = table_of<DeltaTable>(isa_for(exec.isa, in.q.dtype));
  const tile::KeptOffsets offsets = kept_offsets(table, in);
  for_items(
      exec, in, table.forward_scratch(in.key, in.value), [&](const Item& item, float* scratch) {
        table.forward(task_of(in, item, initial_state),
                      {tile::head_of(out, item.tokens, item.head, in.value),
                       state_of<tile::Out>(in, final_state, item), offsets.of(kept, item.index)},
                      scratch);
      });
}

void delta_scan_backward(Exec& exec, const DeltaScan& in, ConstView initial_state, ConstView d_out,
                         ConstView d_final_state, const DeltaScanGradients& gradients,
                         ConstView kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_gradients(in, d_out, d_final_state, gradients);

  // Heads of a group write their own dq and dk, which are then added up in order.
  const int64_t tokens = in.q.rows(), group = in.heads / in.qk_heads;
  Tensor dq_heads, dk_heads;
  View dq = gradients.dq, dk = gradients.dk;
  if (group > 1) {
    dq_heads = exec.scratch({tokens, in.heads * in.key});
    dk_heads = exec.scratch({tokens, in.heads * in.key});
    dq = dq_heads.view(), dk = dk_heads.view();
  }
  const DeltaTable& table = table_of<DeltaTable>(isa_for(exec.isa, in.q.dtype));
  const tile::KeptOffsets offsets = kept_offsets(table, in);
  for_items(exec, in, table.backward_scratch(longest(in), in.key, in.value),
            [&](const Item& item, float* scratch) {
              table.backward(task_of(in, item, initial_state),
                             {tile::head_of(d_out, item.tokens, item.head, in.value),
                              state_of<tile::In>(in, d_final_state, item),
                              tile::head_of(dq, item.tokens, item.head, in.key),
                              tile::head_of(dk, item.tokens, item.head, in.key),
                              tile::head_of(gradients.dv, item.tokens, item.head, in.value),
                              tile::column_of(gradients.d_beta, item.tokens, item.head),
                              tile::column_of(gradients.d_log_decay, item.tokens, item.head),
                              state_of<tile::Out>(in, gradients.d_initial_state, item),
                              offsets.of(kept, item.index)},
                             scratch);
            });
  if (group > 1) {
    tile::sum_groups(exec, dq, gradients.dq, group, in.key);
    tile::sum_groups(exec, dk, gradients.dk, group, in.key);
  }
}

}  // namespace weft::kernels
