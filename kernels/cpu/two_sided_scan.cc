#include "kernels/cpu/two_sided_scan.h"

#include "kernels/programs/two_sided_scan.h"
#include "kernels/programs/two_sided_scan_backward.h"
#include "kernels/tile/cpu_states.h"
#include "kernels/tile/cpu_two_sided.h"

// The driver of kernels/cpu/diagonal_scan.cc for decays on both sides.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

struct Sizes {
  int64_t chunk_, key_, value_;
  WEFT_INLINE int64_t chunk() const { return chunk_; }
  WEFT_INLINE int64_t block() const { return programs::kDiagonalBlock; }
  WEFT_INLINE int64_t key() const { return key_; }
  WEFT_INLINE int64_t value() const { return value_; }
};
using Chunk = programs::TwoSidedChunk<TwoSidedEngine>;
using ForwardSpace = programs::TwoSidedSpace<TwoSidedEngine, Sizes>;
using OuterSpace = programs::TwoSidedOuterSpace<TwoSidedEngine, Sizes>;
using BackwardSpace = programs::TwoSidedBackwardSpace<TwoSidedEngine, Sizes>;

Chunk chunk_of(const DiagonalTask& task, int64_t begin, int64_t count) {
  return {task.q.row_range(begin, count),
          task.k.row_range(begin, count),
          task.v.row_range(begin, count),
          task.log_decay.row_range(begin, count),
          task.value_log_decay.row_range(begin, count),
          task.scale};
}

// Tells the engine which rows the chunk at `begin` will read.
void expect(TwoSidedEngine& e, const DiagonalTask& task, int64_t begin) {
  if (begin < 0 || begin >= task.q.rows) return;
  const Chunk next = chunk_of(task, begin, chunk_length(begin, task.q.rows));
  for (const tile::In& rows : {next.q, next.k, next.v, next.key_decay, next.value_decay}) {
    e.soon(rows);
  }
}

template <class Space>
int64_t scratch_of(int64_t key, int64_t value) {
  Space w;
  return place(w, Sizes{kChunk, key, value}, nullptr);
}

void forward(const DiagonalTask& task, const DiagonalOutputs& outputs, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  TwoSidedEngine e;
  ForwardSpace w;
  place(w, Sizes{kChunk, key, value}, scratch);
  if (task.initial_state.empty()) {
    e.clear(w.m);
  } else {
    e.load(w.m, task.initial_state);
  }
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, scratch);
    expect(e, task, begin + kChunk);
    programs::two_sided_forward(e, chunk_of(task, begin, count),
                                outputs.out.row_range(begin, count), w);
  }
  if (!outputs.final_state.empty()) {
    e.run(tile::kFull, tile::take(w.m), tile::store(outputs.final_state));
  }
}

int64_t backward_scratch(int64_t tokens, int64_t key, int64_t value) {
  const int64_t chunks = (tokens + kChunk - 1) / kChunk;
  const int64_t work = scratch_of<BackwardSpace>(key, value);
  const int64_t states = scratch_of<OuterSpace>(key, value);
  return (chunks + 1) * States::size(key, value) + (work > states ? work : states);
}

void rebuild_states(const DiagonalTask& task, const States& states, float* scratch) {
  TwoSidedEngine e;
  OuterSpace w;
  turn_state(task.initial_state, states.at(0));
  for (int64_t begin = 0; begin < task.q.rows; begin += kChunk) {
    const int64_t c = begin / kChunk, count = chunk_length(begin, task.q.rows);
    place(w, Sizes{count, states.key, states.value}, scratch);
    expect(e, task, begin + kChunk);
    programs::two_sided_outer(e, chunk_of(task, begin, count), readable(states.at(c)),
                              states.at(c + 1), w);
  }
}

// The gradient of the state that leaves the last chunk, and its products with that state.
void begin_backward(TwoSidedEngine& e, const DiagonalGradients& g, const tile::In& last,
                    BackwardSpace& w) {
  turn_state(g.d_final_state, {w.dm.plain, w.dm.stride, w.dm.rows, w.dm.columns, DType::kF32});
  e.settle(w.dm);
  e.fill(w.key_product, [&](auto) { return e.number(0.0f); });
  e.fill(w.value_product, [&](auto) { return e.number(0.0f); });
  e.load(w.m, last);
  const auto product = [&](auto i, auto j, auto x) { return x * w.m(i, j); };
  e.run(tile::kFull, tile::take(w.dm), tile::column_sum(w.key_product, product),
        tile::row_sum(w.value_product, product));
}

void backward(const DiagonalTask& task, const DiagonalGradients& g, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  const int64_t chunks = (tokens + kChunk - 1) / kChunk;
  const States states{scratch, key, value};
  float* work = scratch + (chunks + 1) * States::size(key, value);
  rebuild_states(task, states, work);

  TwoSidedEngine e;
  BackwardSpace w;
  place(w, Sizes{kChunk, key, value}, work);
  begin_backward(e, g, readable(states.at(chunks)), w);
  for (int64_t c = chunks - 1; c >= 0; --c) {
    const int64_t begin = c * kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, work);
    const programs::TwoSidedChunkGradients<TwoSidedEngine> part{
        g.d_out.row_range(begin, count),
        readable(states.at(c)),
        g.dq.row_range(begin, count),
        g.dk.row_range(begin, count),
        g.dv.row_range(begin, count),
        g.d_log_decay.row_range(begin, count),
        g.d_value_log_decay.row_range(begin, count)};
    expect(e, task, begin - kChunk);
    if (c > 0) e.soon(g.d_out.row_range(begin - kChunk, kChunk));
    programs::two_sided_backward(e, chunk_of(task, begin, count), part, w);
  }
  if (!g.d_initial_state.empty()) {
    e.run(tile::kFull, tile::take(w.dm), tile::store_turned(g.d_initial_state));
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const DiagonalTable& two_sided_table(ThisIsa) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr DiagonalTable table{isa::scratch_of<isa::ForwardSpace>, isa::forward,
                                       isa::backward_scratch, isa::backward};
  return table;
}

}  // namespace weft::kernels
