#include "kernels/scalar_scan.h"

#include <algorithm>

#include "kernels/cpu/scalar_scan.h"
#include "kernels/tile/heads.h"

namespace weft::kernels {
namespace {

const ScanTable& table_of(const Exec& exec) {
  return by_isa(exec.isa, [](auto isa) -> const ScanTable& { return scan_table(isa); });
}

bool is_static(const ConstView& log_decay) { return log_decay.shape.dims() == 1; }

void check_scan(const ScalarScan& in) {
  tile::check_heads("scalar_scan",
                    {in.q, in.k, in.v, in.documents, in.heads, in.kv_heads, in.key, in.value});
  if (tile::absent(in.log_decay)) return;
  WEFT_CHECK(in.log_decay.dtype == DType::kF32 && in.log_decay.width() == in.heads &&
                 (is_static(in.log_decay) || in.log_decay.rows() == in.q.rows()),
             "scalar_scan: log_decay is {} {}, expected f32 [{}, {}] or [{}]",
             name_of(in.log_decay.dtype), in.log_decay.shape, in.q.rows(), in.heads, in.heads);
}

void check_state(const ScalarScan& in, const ConstView& state, const char* name) {
  if (tile::absent(state)) return;
  const auto documents = static_cast<int64_t>(in.documents.size()) - 1;
  WEFT_CHECK(state.dtype == DType::kF32 && state.contiguous() &&
                 state.shape.elements() == documents * in.heads * in.key * in.value,
             "scalar_scan: {} is {} {}, expected f32 [{}, {}, {}, {}]", name, name_of(state.dtype),
             state.shape, documents, in.heads, in.key, in.value);
}

// One head of one document.
struct Item {
  int64_t document, head;
  tile::Tokens tokens;
};

template <class To, class From>
To state_of(const ScalarScan& in, const From& states, const Item& item) {
  if (tile::absent(states)) return {};
  const int64_t index = item.document * in.heads + item.head;
  return {states.template as<float>() + index * in.key * in.value, in.value, in.key, in.value,
          DType::kF32};
}

ScanTask task_of(const ScalarScan& in, const ConstView& initial_state, const Item& item) {
  const int64_t kv_head = item.head / (in.heads / in.kv_heads);
  ScanTask task;
  task.q = tile::head_of(in.q, item.tokens, item.head, in.key);
  task.k = tile::head_of(in.k, item.tokens, kv_head, in.key);
  task.v = tile::head_of(in.v, item.tokens, kv_head, in.value);
  task.q.rows = item.tokens.count, task.q.columns = in.key, task.v.columns = in.value;
  task.scale = in.scale;
  task.initial_state = state_of<tile::In>(in, initial_state, item);
  if (is_static(in.log_decay) && !tile::absent(in.log_decay)) {
    task.log_decay = {in.log_decay.as<float>() + item.head, 0};
  } else {
    task.log_decay = tile::column_of(in.log_decay, item.tokens, item.head);
  }
  return task;
}

// Runs task(item, scratch of the thread) for every head of every document.
template <class Task>
void for_items(Exec& exec, const ScalarScan& in, int64_t scratch_floats, Task task) {
  const auto documents = static_cast<int64_t>(in.documents.size()) - 1;
  const int64_t floats = (scratch_floats + 15) / 16 * 16;
  const Tensor scratch = exec.scratch({exec.threads.size(), floats});
  exec.threads.run_on(documents * in.heads, [&](int64_t index, int thread) {
    const int64_t document = index / in.heads;
    const int64_t begin = in.documents[document], end = in.documents[document + 1];
    task(Item{document, index % in.heads, {begin, end - begin}},
         scratch.data<float>() + thread * floats);
  });
}

int64_t longest_document(const ScalarScan& in) {
  int64_t longest = 0;
  for (size_t d = 0; d + 1 < in.documents.size(); ++d) {
    longest = std::max<int64_t>(longest, in.documents[d + 1] - in.documents[d]);
  }
  return longest;
}

}  // namespace

void scalar_scan_forward(Exec& exec, const ScalarScan& in, ConstView initial_state, View out,
                         View final_state) {
  check_scan(in);
  check_state(in, initial_state, "initial_state");
  check_state(in, final_state, "final_state");
  tile::check_matrix("scalar_scan", "out", out, in.q.rows(), in.heads * in.value, in.v.dtype);
  const ScanTable& table = table_of(exec);
  for_items(exec, in, table.forward_scratch(in.key, in.value),
            [&](const Item& item, float* scratch) {
              const ScanOutputs outputs{tile::head_of(out, item.tokens, item.head, in.value),
                                        state_of<tile::Out>(in, final_state, item)};
              table.forward(task_of(in, initial_state, item), outputs, scratch);
            });
}

void scalar_scan_backward(Exec& exec, const ScalarScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const ScalarScanGradients& gradients) {
  const int64_t tokens = in.q.rows(), group = in.heads / std::max<int64_t>(in.kv_heads, 1);
  check_scan(in);
  check_state(in, initial_state, "initial_state");
  check_state(in, d_final_state, "d_final_state");
  check_state(in, gradients.d_initial_state, "d_initial_state");
  tile::check_matrix("scalar_scan", "d_out", d_out, tokens, in.heads * in.value, in.v.dtype);
  tile::check_matrix("scalar_scan", "dq", gradients.dq, tokens, in.heads * in.key, in.q.dtype);
  tile::check_matrix("scalar_scan", "dk", gradients.dk, tokens, in.kv_heads * in.key, in.k.dtype);
  tile::check_matrix("scalar_scan", "dv", gradients.dv, tokens, in.kv_heads * in.value, in.v.dtype);
  if (!tile::absent(gradients.d_log_decay)) {
    tile::check_matrix("scalar_scan", "d_log_decay", gradients.d_log_decay, tokens, in.heads,
                       DType::kF32);
  }

  // Heads of a group write their own dk and dv, which are then added up in order.
  Tensor dk_heads, dv_heads;
  View dk = gradients.dk, dv = gradients.dv;
  if (group > 1) {
    dk_heads = exec.scratch({tokens, in.heads * in.key});
    dv_heads = exec.scratch({tokens, in.heads * in.value});
    dk = dk_heads.view(), dv = dv_heads.view();
  }
  const ScanTable& table = table_of(exec);
  const int64_t floats = table.backward_scratch(longest_document(in), in.key, in.value);
  for_items(exec, in, floats, [&](const Item& item, float* scratch) {
    const ScanGradients g{tile::head_of(d_out, item.tokens, item.head, in.value),
                          state_of<tile::In>(in, d_final_state, item),
                          tile::head_of(gradients.dq, item.tokens, item.head, in.key),
                          tile::head_of(dk, item.tokens, item.head, in.key),
                          tile::head_of(dv, item.tokens, item.head, in.value),
                          tile::column_of(gradients.d_log_decay, item.tokens, item.head),
                          state_of<tile::Out>(in, gradients.d_initial_state, item)};
    table.backward(task_of(in, initial_state, item), g, scratch);
  });
  if (group > 1) {
    tile::sum_groups(exec, dk, gradients.dk, group, in.key);
    tile::sum_groups(exec, dv, gradients.dv, group, in.value);
  }
}

}  // namespace weft::kernels
