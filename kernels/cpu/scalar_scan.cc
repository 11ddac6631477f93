#include "kernels/cpu/scalar_scan.h"

#include "kernels/programs/scalar_scan.h"
#include "kernels/programs/scalar_scan_backward.h"
#include "kernels/tile/cpu.h"

// The CPU walks the chunks of a head one after the other, the state staying near the core.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

constexpr int64_t kChunk = 64;

struct Sizes {
  int64_t chunk_, key_, value_;
  WEFT_INLINE int64_t chunk() const { return chunk_; }
  WEFT_INLINE int64_t key() const { return key_; }
  WEFT_INLINE int64_t value() const { return value_; }
};
using Chunk = programs::ScanChunk<Engine>;
using ForwardSpace = programs::ScanSpace<Engine, Sizes>;
using StateSpace = programs::ScanStateSpace<Engine, Sizes>;
using BackwardSpace = programs::ScanBackwardSpace<Engine, Sizes>;

int64_t chunk_length(int64_t begin, int64_t tokens) {
  return tokens - begin < kChunk ? tokens - begin : kChunk;
}

Chunk chunk_of(const ScanTask& task, int64_t begin, int64_t count) {
  return {task.q.row_range(begin, count), task.k.row_range(begin, count),
          task.v.row_range(begin, count), task.log_decay.from(begin), task.scale};
}

template <class Space>
int64_t scratch_of(int64_t key, int64_t value) {
  Space w;
  return place(w, Sizes{kChunk, key, value}, nullptr);
}

// An f32 state [key, value] as it is, or transposed.
template <class Op>
void load_state(Engine& e, const tile::In& state, Op& m) {
  if (state.empty()) {
    e.clear(m);
  } else {
    e.load(m, state);
  }
}
template <class Op>
void load_state_turned(const tile::In& state, Op& m) {
  const auto* data = static_cast<const float*>(state.data);
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.columns; ++j) {
      m.plain[i * m.stride + j] = state.empty() ? 0.0f : data[j * state.stride + i];
    }
  }
  turn(m);
}

void forward(const ScanTask& task, const ScanOutputs& outputs, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  Engine e;
  ForwardSpace w;
  place(w, Sizes{kChunk, key, value}, scratch);
  load_state(e, task.initial_state, w.m);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, scratch);
    programs::scan_forward(e, chunk_of(task, begin, count), outputs.out.row_range(begin, count), w);
  }
  if (!outputs.final_state.empty())
    e.run(tile::kFull, tile::take(w.m), tile::store(outputs.final_state));
}

int64_t backward_scratch(int64_t tokens, int64_t key, int64_t value) {
  const int64_t chunks = (tokens + kChunk - 1) / kChunk;
  const int64_t work = scratch_of<BackwardSpace>(key, value);
  const int64_t states = scratch_of<StateSpace>(key, value);
  return (chunks + 1) * round_up(key * value, 16) + (work > states ? work : states);
}

// States M^T before every chunk and after the last one, f32 [value, key] each.
struct States {
  float* first;
  int64_t key, value;
  tile::Out at(int64_t chunk) const {
    return {first + chunk * round_up(key * value, 16), key, value, key, DType::kF32};
  }
};

tile::In readable(const tile::Out& view) {
  return {view.data, view.stride, view.rows, view.columns, view.dtype};
}

void rebuild_states(const ScanTask& task, const States& states, float* scratch) {
  const int64_t tokens = task.q.rows;
  Engine e;
  StateSpace w;
  place(w, Sizes{kChunk, states.key, states.value}, scratch);
  load_state_turned(task.initial_state, w.m);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t count = chunk_length(begin, tokens);
    place(w, Sizes{count, states.key, states.value}, scratch);
    e.run(tile::kFull, tile::take(w.m), tile::store(states.at(begin / kChunk)));
    programs::scan_state(e, chunk_of(task, begin, count), w);
  }
  e.run(tile::kFull, tile::take(w.m), tile::store(states.at((tokens + kChunk - 1) / kChunk)));
}

void backward(const ScanTask& task, const ScanGradients& g, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  const int64_t chunks = (tokens + kChunk - 1) / kChunk;
  const States states{scratch, key, value};
  float* work = scratch + (chunks + 1) * round_up(key * value, 16);
  rebuild_states(task, states, work);

  Engine e;
  BackwardSpace w;
  place(w, Sizes{kChunk, key, value}, work);
  load_state_turned(g.d_final_state, w.dm);
  e.fill(w.product, [&](auto) { return e.number(0.0f); });
  e.load(w.m, readable(states.at(chunks)));
  e.run(tile::kFull, tile::take(w.dm),
        tile::row_sum(w.product, [&](auto i, auto j, auto x) { return x * w.m(i, j); }));
  for (int64_t c = chunks - 1; c >= 0; --c) {
    const int64_t begin = c * kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, work);
    programs::ScanChunkGradients<Engine> part{
        g.d_out.row_range(begin, count), readable(states.at(c)),       g.dq.row_range(begin, count),
        g.dk.row_range(begin, count),    g.dv.row_range(begin, count), g.d_log_decay.from(begin)};
    programs::scan_backward(e, chunk_of(task, begin, count), part, w);
  }
  if (!g.d_initial_state.empty()) {
    e.run(tile::kFull, tile::take(w.dm), tile::store_turned(g.d_initial_state));
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ScanTable& scan_table(ThisIsa) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr ScanTable table{isa::scratch_of<isa::ForwardSpace>, isa::forward,
                                   isa::backward_scratch, isa::backward};
  return table;
}

}  // namespace weft::kernels
