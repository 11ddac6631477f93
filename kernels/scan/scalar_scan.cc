#include "kernels/scan/scalar_scan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/host_access.h"
#include "kernels/scan/cpu/isa/scalar_scan.h"
#include "kernels/scan/scan_checks.h"
#include "kernels/tile/heads.h"
#include "kernels/tile/kept.h"

namespace weft::kernels {
namespace {

bool is_static(const ConstView& log_decay) { return log_decay.shape.dims() == 1; }

// How many heads each input has.
struct HeadCounts {
  int64_t q, k, v;
};
HeadCounts counts_of(const ScalarScan& in) {
  if (in.qk_heads > 0) return {in.qk_heads, in.qk_heads, in.heads};
  return {in.heads, in.kv_heads, in.kv_heads};
}

int64_t queries(const ScalarScan& in) { return counts_of(in).q * in.key; }
int64_t keys(const ScalarScan& in) { return counts_of(in).k * in.key; }
int64_t values(const ScalarScan& in) { return counts_of(in).v * in.value; }
int64_t heads(const ScalarScan& in) { return in.heads; }
constexpr ScanField<ScalarScan> kFields[] = {
    {"q", &ScalarScan::q, &ScalarScanGradients::dq, queries},
    {"k", &ScalarScan::k, &ScalarScanGradients::dk, keys},
    {"v", &ScalarScan::v, &ScalarScanGradients::dv, values},
    {"log_decay", &ScalarScan::log_decay, &ScalarScanGradients::d_log_decay, heads, FieldType::kF32,
     Presence::kOptionalWithGradient, FieldRows::kTokensOrOne},
};

void check_scan(const ScalarScan& in) {
  check_head_counts(in.kName, in.heads, counts_of(in).q, in.key, in.value);
  check_head_counts(in.kName, in.heads, counts_of(in).v, in.key, in.value);
  check_inputs(in);
}

// One head of one span of tokens. A span is a document, or a piece of a long one where there is too
// little else to do at the same time.
struct Item {
  int64_t document, head;
  tile::Tokens tokens;
  bool first, last;  // span of its document
};

// Pieces cost another pass over keys and values (and queries and output gradients, backward), a
// good third of the time. The cut depends on shapes alone, so results do not depend on the threads.
constexpr int64_t kEnoughItems = 4, kSpan = 1024;

// The spans of a head of a document follow each other.
std::vector<Item> items_of(const ScalarScan& in) {
  const auto documents = static_cast<int64_t>(in.documents.size()) - 1;
  const bool cut = documents * in.heads < kEnoughItems;
  std::vector<Item> items;
  for (int64_t d = 0; d < documents; ++d) {
    const int64_t begin = in.documents[d], end = in.documents[d + 1];
    const int64_t span =
        cut && end - begin >= 2 * kSpan ? kSpan : std::max<int64_t>(end - begin, 1);
    for (int64_t h = 0; h < in.heads; ++h) {
      int64_t at = begin;
      do {
        const int64_t count = std::min(span, end - at);
        items.push_back({d, h, {at, count}, at == begin, at + count == end});
        at += count;
      } while (at < end);
    }
  }
  return items;
}

template <class To, class From>
To state_of(const ScalarScan& in, const From& states, int64_t index) {
  if (tile::absent(states)) return {};
  return {host<float>(states) + index * in.key * in.value, in.value, in.key, in.value, DType::kF32};
}
int64_t state_index(const ScalarScan& in, const Item& item) {
  return item.document * in.heads + item.head;
}

ScanTask task_of(const ScalarScan& in, const Item& item) {
  const HeadCounts n = counts_of(in);
  const auto shared = [&](int64_t heads) { return item.head / (in.heads / heads); };
  ScanTask task;
  task.q = tile::head_of(in.q, item.tokens, shared(n.q), in.key);
  task.k = tile::head_of(in.k, item.tokens, shared(n.k), in.key);
  task.v = tile::head_of(in.v, item.tokens, shared(n.v), in.value);
  task.q.rows = item.tokens.count, task.q.columns = in.key, task.v.columns = in.value;
  task.scale = in.scale;
  if (is_static(in.log_decay) && !tile::absent(in.log_decay)) {
    task.log_decay = {host<float>(in.log_decay) + item.head, 0};
  } else {
    task.log_decay = tile::column_of(in.log_decay, item.tokens, item.head);
  }
  return task;
}

// Runs task(index of the item, scratch of the thread) for every item.
template <class Task>
void for_items(Exec& exec, const std::vector<Item>& items, int64_t scratch_floats, Task task) {
  const int64_t floats = (scratch_floats + 15) / 16 * 16;
  const Tensor scratch = exec.scratch({exec.threads.size(), floats});
  exec.threads.run_on(static_cast<int64_t>(items.size()), [&](int64_t index, int thread) {
    task(index, host<float>(scratch) + thread * floats);
  });
}

tile::KeptOffsets kept_offsets(const ScanTable& table, const ScalarScan& in,
                               const std::vector<Item>& items) {
  return {"scalar_scan", static_cast<int64_t>(items.size()),
          [&](int64_t i) { return table.kept(items[i].tokens.count, in.key, in.value); }};
}

int64_t longest(const std::vector<Item>& items) {
  int64_t tokens = 0;
  for (const Item& item : items) tokens = std::max(tokens, item.tokens.count);
  return tokens;
}

// States at the borders of spans, f32 [items, key, value]. `spans` holds what each span does to a
// state that starts from zero, `totals` its decay; `outer` the states at the borders of documents.
// Afterwards row i of `spans` is the state before (forward) or behind (backward) span i.
enum class Direction : uint8_t { kForward, kBackward };
void chain(const ScalarScan& in, const std::vector<Item>& items, Direction direction,
           ConstView outer, const std::vector<float>& totals, const Tensor& spans) {
  const int64_t count = static_cast<int64_t>(items.size()), size = in.key * in.value;
  std::vector<float> state(static_cast<size_t>(size));
  for (int64_t n = 0; n < count; ++n) {
    const int64_t i = direction == Direction::kForward ? n : count - 1 - n;
    const Item& item = items[i];
    if (direction == Direction::kForward ? item.first : item.last) {
      const auto start = state_of<tile::In>(in, outer, state_index(in, item));
      const auto* from = static_cast<const float*>(start.data);
      for (int64_t j = 0; j < size; ++j) state[j] = start.empty() ? 0.0f : from[j];
    }
    const float decay = std::exp(totals[i]);
    float* span = host<float>(spans) + i * size;
    for (int64_t j = 0; j < size; ++j) {
      const float before = state[j];
      state[j] = decay * before + span[j];
      span[j] = before;
    }
  }
}

// What every item does to a state (direction forward) or to its gradient; returns log decays.
std::vector<float> span_updates(Exec& exec, const ScalarScan& in, const std::vector<Item>& items,
                                ConstView d_out, const Tensor& spans) {
  const ScanTable& table = table_of<ScanTable>(isa_for(exec.isa, in.q.dtype));
  std::vector<float> totals(items.size());
  for_items(exec, items, table.forward_scratch(in.key, in.value), [&](int64_t i, float* scratch) {
    const auto state = state_of<tile::Out>(in, spans.view(), i);
    const ScanTask task = task_of(in, items[i]);
    totals[i] = tile::absent(d_out)
                    ? table.summarize(task, state, scratch)
                    : table.summarize_back(
                          task, tile::head_of(d_out, items[i].tokens, items[i].head, in.value),
                          state, scratch);
  });
  return totals;
}

// The state before every item, when documents are cut; otherwise undefined and not needed.
Tensor states_before(Exec& exec, const ScalarScan& in, const std::vector<Item>& items,
                     ConstView initial_state) {
  const Tensor spans = exec.scratch({static_cast<int64_t>(items.size()), in.key, in.value});
  const std::vector<float> totals = span_updates(exec, in, items, {}, spans);
  chain(in, items, Direction::kForward, initial_state, totals, spans);
  return spans;
}
Tensor d_states_behind(Exec& exec, const ScalarScan& in, const std::vector<Item>& items,
                       ConstView d_out, ConstView d_final_state) {
  const Tensor spans = exec.scratch({static_cast<int64_t>(items.size()), in.key, in.value});
  const std::vector<float> totals = span_updates(exec, in, items, d_out, spans);
  chain(in, items, Direction::kBackward, d_final_state, totals, spans);
  return spans;
}

// Updates of the spans of a document as the update of the document; `direction` says which is last.
void fold(const ScalarScan& in, const std::vector<Item>& items, Direction direction,
          const std::vector<float>& totals, const Tensor& spans, View update, View total) {
  const int64_t count = static_cast<int64_t>(items.size()), size = in.key * in.value;
  for (int64_t n = 0; n < count; ++n) {
    const int64_t i = direction == Direction::kForward ? n : count - 1 - n;
    const Item& item = items[i];
    const int64_t at = state_index(in, item);
    const bool fresh = direction == Direction::kForward ? item.first : item.last;
    float* to = host<float>(update) + at * size;
    const float* span = host<float>(spans) + i * size;
    const float decay = std::exp(totals[i]);
    for (int64_t j = 0; j < size; ++j) to[j] = fresh ? span[j] : decay * to[j] + span[j];
    if (tile::absent(total)) continue;
    float& sum = host<float>(total)[at];
    sum = fresh ? totals[i] : sum + totals[i];
  }
}

bool are_cut(const std::vector<Item>& items) {
  return std::any_of(items.begin(), items.end(), [](const Item& item) { return !item.first; });
}

// The gradient of what groups of heads share: every head writes its own, which are then added up in
// order.
struct HeadGradient {
  HeadGradient(Exec& exec, View to, int64_t heads, int64_t shared, int64_t width)
      : view(to), to(to), group(heads / shared), width(width) {
    if (group == 1) return;
    own = exec.scratch({to.rows(), heads * width});
    view = own.view();
  }
  void sum(Exec& exec) const {
    if (group > 1) tile::sum_groups(exec, view, to, group, width);
  }

  Tensor own;
  View view, to;
  int64_t group, width;
};

}  // namespace

std::span<const ScanField<ScalarScan>> ScalarScan::fields() { return kFields; }

int64_t scalar_scan_kept(Exec& exec, const ScalarScan& in) {
  return kept_offsets(table_of<ScanTable>(isa_for(exec.isa, in.q.dtype)), in, items_of(in))
      .floats();
}

void scalar_scan_forward(Exec& exec, const ScalarScan& in, ConstView initial_state, View out,
                         View final_state, View kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_state(in, "final_state", final_state);
  check_head_output(in, "out", out);
  const ScanTable& table = table_of<ScanTable>(isa_for(exec.isa, in.q.dtype));
  const std::vector<Item> items = items_of(in);
  const bool cut = are_cut(items);
  const Tensor before = cut ? states_before(exec, in, items, initial_state) : Tensor{};
  const tile::KeptOffsets offsets = kept_offsets(table, in, items);
  for_items(exec, items, table.forward_scratch(in.key, in.value), [&](int64_t i, float* scratch) {
    const Item& item = items[i];
    ScanTask task = task_of(in, item);
    task.initial_state = state_of<tile::In>(in, cut ? ConstView(before) : initial_state,
                                            cut ? i : state_index(in, item));
    ScanOutputs outputs{
        tile::head_of(out, item.tokens, item.head, in.value), {}, offsets.of(kept, i)};
    if (item.last)
      outputs.final_state = state_of<tile::Out>(in, final_state, state_index(in, item));
    table.forward(task, outputs, scratch);
  });
}

void scalar_scan_backward(Exec& exec, const ScalarScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const ScalarScanGradients& gradients, ConstView kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_gradients(in, d_out, d_final_state, gradients);

  const HeadCounts n = counts_of(in);
  const HeadGradient dq(exec, gradients.dq, in.heads, n.q, in.key),
      dk(exec, gradients.dk, in.heads, n.k, in.key),
      dv(exec, gradients.dv, in.heads, n.v, in.value);
  const ScanTable& table = table_of<ScanTable>(isa_for(exec.isa, in.q.dtype));
  const std::vector<Item> items = items_of(in);
  const bool cut = are_cut(items);
  const Tensor before = cut ? states_before(exec, in, items, initial_state) : Tensor{};
  const Tensor d_behind = cut ? d_states_behind(exec, in, items, d_out, d_final_state) : Tensor{};
  const tile::KeptOffsets offsets = kept_offsets(table, in, items);
  const int64_t floats = table.backward_scratch(longest(items), in.key, in.value);
  for_items(exec, items, floats, [&](int64_t i, float* scratch) {
    const Item& item = items[i];
    const int64_t at = cut ? i : state_index(in, item);
    ScanTask task = task_of(in, item);
    task.initial_state = state_of<tile::In>(in, cut ? ConstView(before) : initial_state, at);
    ScanGradients g{tile::head_of(d_out, item.tokens, item.head, in.value),
                    state_of<tile::In>(in, cut ? ConstView(d_behind) : d_final_state, at),
                    tile::head_of(dq.view, item.tokens, item.head, in.key),
                    tile::head_of(dk.view, item.tokens, item.head, in.key),
                    tile::head_of(dv.view, item.tokens, item.head, in.value),
                    tile::column_of(gradients.d_log_decay, item.tokens, item.head),
                    {},
                    offsets.of(kept, i)};
    if (item.first) {
      g.d_initial_state = state_of<tile::Out>(in, gradients.d_initial_state, state_index(in, item));
    }
    table.backward(task, g, scratch);
  });
  for (const HeadGradient* shared : {&dq, &dk, &dv}) shared->sum(exec);
}

void scalar_scan_summary(Exec& exec, const ScalarScan& in, View update, View total) {
  check_scan(in);
  check_head_state(in, "update", update);
  const std::vector<Item> items = items_of(in);
  const Tensor spans = exec.scratch({static_cast<int64_t>(items.size()), in.key, in.value});
  const std::vector<float> totals = span_updates(exec, in, items, {}, spans);
  fold(in, items, Direction::kForward, totals, spans, update, total);
}

void scalar_scan_state_gradient(Exec& exec, const ScalarScan& in, ConstView d_out,
                                View d_initial_state) {
  check_scan(in);
  check_head_state(in, "d_initial_state", d_initial_state);
  const std::vector<Item> items = items_of(in);
  const Tensor spans = exec.scratch({static_cast<int64_t>(items.size()), in.key, in.value});
  const std::vector<float> totals = span_updates(exec, in, items, d_out, spans);
  fold(in, items, Direction::kBackward, totals, spans, d_initial_state, {});
}

}  // namespace weft::kernels
