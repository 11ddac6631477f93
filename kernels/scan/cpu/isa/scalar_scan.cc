#include "kernels/scan/cpu/isa/scalar_scan.h"

#include "kernels/programs/scalar_scan.h"
#include "kernels/programs/scalar_scan_backward.h"
#include "kernels/tile/cpu_states.h"

// The CPU walks the chunks of a head one after the other, the state staying near the core.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

using programs::Weights;

struct Sizes {
  int64_t chunk_, key_, value_;
  WEFT_INLINE int64_t chunk() const { return chunk_; }
  WEFT_INLINE int64_t key() const { return key_; }
  WEFT_INLINE int64_t value() const { return value_; }
};
struct OuterSizes {
  int64_t chunk_, left_, right_;
  WEFT_INLINE int64_t chunk() const { return chunk_; }
  WEFT_INLINE int64_t left() const { return left_; }
  WEFT_INLINE int64_t right() const { return right_; }
};
using Chunk = programs::ScanChunk<Engine>;
using ForwardSpace = programs::ScanSpace<Engine, Sizes>;
using StateSpace = programs::ScanStateSpace<Engine, Sizes>;
using OuterSpace = programs::ScanOuterSpace<Engine, OuterSizes>;
using BackwardSpace = programs::ScanBackwardSpace<Engine, Sizes>;

Chunk chunk_of(const ScanTask& task, int64_t begin, int64_t count) {
  return {task.q.row_range(begin, count), task.k.row_range(begin, count),
          task.v.row_range(begin, count), task.log_decay.from(begin), task.scale};
}

// Tells the engine which rows the chunk at `begin` will read.
void expect(Engine& e, const ScanTask& task, int64_t begin) {
  if (begin < 0 || begin >= task.q.rows) return;
  const int64_t count = chunk_length(begin, task.q.rows);
  e.soon(task.q.row_range(begin, count));
  e.soon(task.k.row_range(begin, count));
  e.soon(task.v.row_range(begin, count));
}

template <class Space, class S>
int64_t scratch_of(int64_t key, int64_t value) {
  Space w;
  return place(w, S{kChunk, key, value}, nullptr);
}

void clear_state(const tile::Out& state) {
  for (int64_t i = 0; i < state.rows; ++i) {
    auto* row = static_cast<float*>(state.data) + i * state.stride;
    for (int64_t j = 0; j < state.columns; ++j) row[j] = 0;
  }
}

void forward(const ScanTask& task, const ScanOutputs& outputs, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  const States states{outputs.kept, key, value, Reader::kMuchLater};
  Engine e;
  ForwardSpace w;
  place(w, Sizes{kChunk, key, value}, scratch);
  start_states(e, task.initial_state, states, w.m);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, scratch);
    expect(e, task, begin + kChunk);
    e.soon(outputs.out.row_range(begin, count));
    programs::scan_forward(e, chunk_of(task, begin, count), outputs.out.row_range(begin, count),
                           states.at(begin / kChunk + 1), w);
  }
  streams_end();
  if (!outputs.final_state.empty())
    e.run(tile::kFull, tile::take(w.m), tile::store(outputs.final_state));
}

int64_t backward_scratch(int64_t tokens, int64_t key, int64_t value) {
  const int64_t back = scratch_of<BackwardSpace, Sizes>(key, value);
  const int64_t ahead = scratch_of<StateSpace, Sizes>(key, value);
  return States::floats(tokens, key, value) + (back > ahead ? back : ahead);
}

void rebuild_states(const ScanTask& task, const States& states, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  Engine e;
  StateSpace w;
  place(w, Sizes{kChunk, key, value}, scratch);
  start_states(e, task.initial_state, states, w.m);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t count = chunk_length(begin, tokens), next = begin + count;
    place(w, Sizes{count, key, value}, scratch);
    if (next < tokens) {
      e.soon(task.k.row_range(next, chunk_length(next, tokens)));
      e.soon(task.v.row_range(next, chunk_length(next, tokens)));
    }
    const tile::Out after = states.at(begin / kChunk + 1);
    e.soon(after);
    programs::scan_state(e, chunk_of(task, begin, count), after, w);
  }
}

float summarize(const ScanTask& task, const tile::Out& state, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  Engine e;
  StateSpace w;
  float total = 0;
  place(w, Sizes{kChunk, key, value}, scratch);
  e.clear(w.m);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, scratch);
    total += programs::scan_state(e, chunk_of(task, begin, count), {}, w);
  }
  e.run(tile::kFull, tile::take(w.m), tile::store(state));
  return total;
}

float summarize_back(const ScanTask& task, const tile::In& d_out, const tile::Out& d_state,
                     float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  Engine e;
  OuterSpace w;
  float total = 0;
  clear_state(d_state);
  if (tokens == 0) return total;  // (0 - 1) / kChunk rounds to the first chunk
  for (int64_t begin = (tokens - 1) / kChunk * kChunk; begin >= 0; begin -= kChunk) {
    const int64_t count = chunk_length(begin, tokens);
    place(w, OuterSizes{count, key, value}, scratch);
    total += programs::scan_outer<Weights::kFromStart, Engine>(
        e,
        {task.q.row_range(begin, count), d_out.row_range(begin, count), task.log_decay.from(begin),
         task.scale, readable(d_state), d_state},
        w);
  }
  return total;
}

void backward(const ScanTask& task, const ScanGradients& g, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  const int64_t chunks = chunk_count(tokens);
  const States states{g.kept == nullptr ? scratch : const_cast<float*>(g.kept), key, value,
                      Reader::kSoon};
  float* work = scratch + States::floats(tokens, key, value);
  if (g.kept == nullptr) rebuild_states(task, states, work);

  Engine e;
  BackwardSpace w;
  place(w, Sizes{kChunk, key, value}, work);
  e.load(w.dm, g.d_final_state);  // zeros when empty
  e.fill(w.product, [&](auto) { return e.number(0.0f); });
  const tile::In last = readable(states.at(chunks));
  e.run(tile::kFull, tile::take(w.dm),
        tile::row_sum(w.product, [&](auto i, auto j, auto x) { return x * e.at(last, i, j); }));
  for (int64_t c = chunks - 1; c >= 0; --c) {
    const int64_t begin = c * kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, work);
    programs::ScanChunkGradients<Engine> part{
        g.d_out.row_range(begin, count), readable(states.at(c)),       g.dq.row_range(begin, count),
        g.dk.row_range(begin, count),    g.dv.row_range(begin, count), g.d_log_decay.from(begin)};
    expect(e, task, begin - kChunk);
    if (c > 0) {
      e.soon(g.d_out.row_range(begin - kChunk, kChunk));
      e.soon(states.at(c - 1));
    }
    e.soon(g.dv.row_range(begin, count));
    e.soon(g.dk.row_range(begin, count));
    e.soon(g.dq.row_range(begin, count));
    programs::scan_backward(e, chunk_of(task, begin, count), part, w);
  }
  if (!g.d_initial_state.empty()) {
    e.run(tile::kFull, tile::take(w.dm), tile::store(g.d_initial_state));
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ScanTable& table(ThisIsa, const ScanTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr ScanTable table{
      isa::States::floats, isa::scratch_of<isa::ForwardSpace, isa::Sizes>,
      isa::forward,        isa::backward_scratch,
      isa::backward,       isa::summarize,
      isa::summarize_back};
  return table;
}

}  // namespace weft::kernels
