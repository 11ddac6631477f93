#include "kernels/cpu/diagonal_scan.h"

#include "kernels/programs/diagonal_scan.h"
#include "kernels/programs/diagonal_scan_backward.h"
#include "kernels/tile/cpu_states.h"
#include "kernels/tile/cpu_walk.h"

// The CPU walks the chunks of a head one after the other, the state staying near the core.
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
using Chunk = programs::DiagonalChunk<WalkEngine>;
using ForwardSpace = programs::DiagonalSpace<WalkEngine, Sizes>;
using OuterSpace = programs::DiagonalOuterSpace<WalkEngine, Sizes>;
using BackwardSpace = programs::DiagonalBackwardSpace<WalkEngine, Sizes>;

Chunk chunk_of(const DiagonalTask& task, int64_t begin, int64_t count) {
  return {task.q.row_range(begin, count),
          task.k.row_range(begin, count),
          task.v.row_range(begin, count),
          task.log_decay.row_range(begin, count),
          task.bonus,
          task.scale};
}

// Tells the engine which rows the chunk at `begin` will read.
void expect(WalkEngine& e, const DiagonalTask& task, int64_t begin) {
  if (begin < 0 || begin >= task.q.rows) return;
  const int64_t count = chunk_length(begin, task.q.rows);
  e.soon(task.q.row_range(begin, count));
  e.soon(task.k.row_range(begin, count));
  e.soon(task.v.row_range(begin, count));
  e.soon(task.log_decay.row_range(begin, count));
}

template <class Space>
int64_t scratch_of(int64_t key, int64_t value) {
  Space w;
  return place(w, Sizes{kChunk, key, value}, nullptr);
}

// The weight of a token's own key: the bonus, or 1.
template <class Vec>
void load_bonus(WalkEngine& e, const DiagonalTask& task, Vec& u) {
  if (task.bonus.empty()) {
    e.fill(u, [&](auto) { return e.number(1.0f); });
  } else {
    e.load(u, task.bonus);
  }
}

void forward(const DiagonalTask& task, const DiagonalOutputs& outputs, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  WalkEngine e;
  ForwardSpace w;
  place(w, Sizes{kChunk, key, value}, scratch);
  load_bonus(e, task, w.u);
  if (task.initial_state.empty()) {
    e.clear(w.m);
  } else {
    e.load(w.m, task.initial_state);
  }
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, scratch);
    expect(e, task, begin + kChunk);
    e.soon(outputs.out.row_range(begin, count));
    programs::diagonal_forward(e, chunk_of(task, begin, count), outputs.out.row_range(begin, count),
                               w);
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
  const int64_t tokens = task.q.rows;
  WalkEngine e;
  OuterSpace w;
  turn_state(task.initial_state, states.at(0));
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t c = begin / kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, states.key, states.value}, scratch);
    expect(e, task, begin + kChunk);
    programs::diagonal_outer(e, chunk_of(task, begin, count), readable(states.at(c)),
                             states.at(c + 1), w);
  }
}

void backward(const DiagonalTask& task, const DiagonalGradients& g, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  const int64_t chunks = (tokens + kChunk - 1) / kChunk;
  const States states{scratch, key, value};
  float* work = scratch + (chunks + 1) * States::size(key, value);
  rebuild_states(task, states, work);

  WalkEngine e;
  BackwardSpace w;
  place(w, Sizes{kChunk, key, value}, work);
  load_bonus(e, task, w.u);
  turn_state(g.d_final_state, {w.dm.plain, w.dm.stride, value, key, DType::kF32});
  e.settle(w.dm);
  e.fill(w.du, [&](auto) { return e.number(0.0f); });
  e.fill(w.product, [&](auto) { return e.number(0.0f); });
  e.borrow(w.m, readable(states.at(chunks)));
  e.run(tile::kFull, tile::take(w.dm),
        tile::column_sum(w.product, [&](auto i, auto j, auto x) { return x * w.m(i, j); }));
  for (int64_t c = chunks - 1; c >= 0; --c) {
    const int64_t begin = c * kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, work);
    const programs::DiagonalChunkGradients<WalkEngine> part{
        g.d_out.row_range(begin, count), readable(states.at(c)),
        g.dq.row_range(begin, count),    g.dk.row_range(begin, count),
        g.dv.row_range(begin, count),    g.d_log_decay.row_range(begin, count)};
    expect(e, task, begin - kChunk);
    if (c > 0) {
      e.soon(g.d_out.row_range(begin - kChunk, kChunk));
      e.soon(states.at(c - 1));
    }
    programs::diagonal_backward(e, chunk_of(task, begin, count), part, w);
  }
  e.save(w.du, g.d_bonus);
  if (!g.d_initial_state.empty()) {
    e.run(tile::kFull, tile::take(w.dm), tile::store_turned(g.d_initial_state));
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const DiagonalTable& diagonal_table(ThisIsa) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr DiagonalTable table{isa::scratch_of<isa::ForwardSpace>, isa::forward,
                                       isa::backward_scratch, isa::backward};
  return table;
}

}  // namespace weft::kernels
