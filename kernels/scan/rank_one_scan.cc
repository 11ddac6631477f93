#include "kernels/scan/rank_one_scan.h"

#include <algorithm>

#include "core/host_access.h"
#include "kernels/scan/cpu/isa/rank_one_scan.h"
#include "kernels/scan/scan_checks.h"
#include "kernels/tile/heads.h"
#include "kernels/tile/kept.h"

namespace weft::kernels {
namespace {

bool is_delta(const RankOneScan& in) { return !given(in.alpha); }

int64_t keys(const RankOneScan& in) { return in.heads * in.key; }
int64_t values(const RankOneScan& in) { return in.heads * in.value; }
int64_t strengths(const RankOneScan& in) { return is_delta(in) ? in.heads : keys(in); }
constexpr ScanField<RankOneScan> kFields[] = {
    {"q", &RankOneScan::q, &RankOneScanGradients::dq, keys},
    {"k", &RankOneScan::k, &RankOneScanGradients::dk, keys},
    {"v", &RankOneScan::v, &RankOneScanGradients::dv, values},
    {"log_decay", &RankOneScan::log_decay, &RankOneScanGradients::d_log_decay, keys,
     FieldType::kF32},
    {"alpha", &RankOneScan::alpha, &RankOneScanGradients::d_alpha, keys, FieldType::kScanOrF32,
     Presence::kOptional},
    {"beta", &RankOneScan::beta, &RankOneScanGradients::d_beta, strengths, FieldType::kScanOrF32},
};

const RankOneTable& scan_table(const Exec& exec, const RankOneScan& in) {
  const RankOneTables& tables = table_of<RankOneTables>(isa_for(exec.isa, in.q.dtype));
  return is_delta(in) ? tables.delta : tables.general;
}

void check_scan(const RankOneScan& in) {
  check_head_counts(in.kName, in.heads, in.heads, in.key, in.value);
  check_inputs(in);
  if (is_delta(in)) check_f32(in.beta, "rank_one_scan: beta");
}

// One head of one document; `index` is that of its state.
struct Item {
  int64_t index, head;
  tile::Tokens tokens;
};

Item item_of(const RankOneScan& in, int64_t index) {
  const int64_t document = index / in.heads, begin = in.documents[document];
  return {index, index % in.heads, {begin, in.documents[document + 1] - begin}};
}

template <class To, class From>
To state_of(const RankOneScan& in, const From& states, const Item& item) {
  if (tile::absent(states)) return {};
  return {host<float>(states) + item.index * in.key * in.value, in.value, in.key, in.value,
          DType::kF32};
}

RankOneTask task_of(const RankOneScan& in, const Item& item, ConstView initial_state) {
  const auto keys = [&](const ConstView& x) {
    return tile::head_of(x, item.tokens, item.head, in.key);
  };
  RankOneTask task;
  task.q = keys(in.q), task.k = keys(in.k), task.log_decay = keys(in.log_decay);
  task.v = tile::head_of(in.v, item.tokens, item.head, in.value);
  task.q.rows = item.tokens.count, task.q.columns = in.key, task.v.columns = in.value;
  if (is_delta(in)) {
    task.strength = tile::column_of(in.beta, item.tokens, item.head);
  } else {
    task.alpha = keys(in.alpha), task.beta = keys(in.beta);
  }
  task.scale = in.scale;
  task.initial_state = state_of<tile::In>(in, initial_state, item);
  return task;
}

RankOneGradients gradients_of(const RankOneScan& in, const Item& item, ConstView d_out,
                              ConstView d_final_state, const RankOneScanGradients& g) {
  const auto keys = [&](const View& x) { return tile::head_of(x, item.tokens, item.head, in.key); };
  RankOneGradients of;
  of.d_out = tile::head_of(d_out, item.tokens, item.head, in.value);
  of.d_final_state = state_of<tile::In>(in, d_final_state, item);
  of.dq = keys(g.dq), of.dk = keys(g.dk), of.d_log_decay = keys(g.d_log_decay);
  of.dv = tile::head_of(g.dv, item.tokens, item.head, in.value);
  if (is_delta(in)) {
    of.d_strength = tile::column_of(g.d_beta, item.tokens, item.head);
  } else {
    of.d_alpha = keys(g.d_alpha), of.d_beta = keys(g.d_beta);
  }
  of.d_initial_state = state_of<tile::Out>(in, g.d_initial_state, item);
  return of;
}

// Runs task(item, scratch of the thread) for every head of every document.
template <class Task>
void for_items(Exec& exec, const RankOneScan& in, int64_t scratch_floats, Task task) {
  const int64_t floats = (scratch_floats + 15) / 16 * 16;
  const Tensor scratch = exec.scratch({exec.threads.size(), floats});
  exec.threads.run_on(documents_of(in) * in.heads, [&](int64_t index, int thread) {
    task(item_of(in, index), host<float>(scratch) + thread * floats);
  });
}

int64_t longest_document(const RankOneScan& in) {
  int64_t tokens = 0;
  for (int64_t d = 0; d < documents_of(in); ++d)
    tokens = std::max<int64_t>(tokens, in.documents[d + 1] - in.documents[d]);
  return tokens;
}

tile::KeptOffsets kept_offsets(const RankOneTable& table, const RankOneScan& in) {
  return tile::KeptOffsets("rank_one_scan", documents_of(in) * in.heads, [&](int64_t i) {
    return table.kept(item_of(in, i).tokens.count, in.key, in.value);
  });
}

}  // namespace

std::span<const ScanField<RankOneScan>> RankOneScan::fields() { return kFields; }

int64_t rank_one_scan_kept(Exec& exec, const RankOneScan& in) {
  return kept_offsets(scan_table(exec, in), in).floats();
}

void rank_one_scan_forward(Exec& exec, const RankOneScan& in, ConstView initial_state, View out,
                           View final_state, View kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_state(in, "final_state", final_state);
  if (!tile::absent(out)) check_head_output(in, "out", out);
  const RankOneTable& table = scan_table(exec, in);
  const tile::KeptOffsets offsets = kept_offsets(table, in);
  for_items(
      exec, in, table.forward_scratch(in.key, in.value), [&](const Item& item, float* scratch) {
        table.forward(task_of(in, item, initial_state),
                      {tile::head_of(out, item.tokens, item.head, in.value),
                       state_of<tile::Out>(in, final_state, item), offsets.of(kept, item.index)},
                      scratch);
      });
}

void rank_one_scan_backward(Exec& exec, const RankOneScan& in, ConstView initial_state,
                            ConstView d_out, ConstView d_final_state,
                            const RankOneScanGradients& gradients, ConstView kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_gradients(in, d_out, d_final_state, gradients);
  if (is_delta(in)) check_f32(gradients.d_beta, "rank_one_scan: d_beta");
  const RankOneTable& table = scan_table(exec, in);
  const tile::KeptOffsets offsets = kept_offsets(table, in);
  for_items(exec, in, table.backward_scratch(longest_document(in), in.key, in.value),
            [&](const Item& item, float* scratch) {
              RankOneGradients g = gradients_of(in, item, d_out, d_final_state, gradients);
              g.kept = offsets.of(kept, item.index);
              table.backward(task_of(in, item, initial_state), g, scratch);
            });
}

}  // namespace weft::kernels
