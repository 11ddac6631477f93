#include "kernels/scan/cpu/isa/delta_scan.h"

#include "kernels/programs/delta_scan.h"
#include "kernels/programs/delta_scan_backward.h"
#include "kernels/tile/cpu_states.h"

// The CPU walks the chunks of a head one after the other, the state staying near the core.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

struct Sizes {
  int64_t chunk_, key_, value_;
  WEFT_INLINE int64_t chunk() const { return chunk_; }
  WEFT_INLINE int64_t key() const { return key_; }
  WEFT_INLINE int64_t value() const { return value_; }
};
using Chunk = programs::DeltaChunk<Engine>;
using ForwardSpace = programs::DeltaSpace<Engine, Sizes>;
using BackwardSpace = programs::DeltaBackwardSpace<Engine, Sizes>;

Chunk chunk_of(const DeltaTask& task, int64_t begin, int64_t count) {
  return {task.q.row_range(begin, count), task.k.row_range(begin, count),
          task.v.row_range(begin, count), task.beta.from(begin),
          task.log_decay.from(begin),     task.scale};
}

// Tells the engine which rows the chunk at `begin` will read.
void expect(Engine& e, const DeltaTask& task, int64_t begin) {
  if (begin < 0 || begin >= task.q.rows) return;
  const int64_t count = chunk_length(begin, task.q.rows);
  e.soon(task.q.row_range(begin, count));
  e.soon(task.k.row_range(begin, count));
  e.soon(task.v.row_range(begin, count));
}

template <class Space>
int64_t scratch_of(int64_t key, int64_t value) {
  Space w;
  return place(w, Sizes{kChunk, key, value}, nullptr);
}

// Results of the walk from the start that the walk from the end reads: for every chunk the state
// before it, T and the errors (f32: they are scaled before products read them), and the state
// after the last.
struct Kept {
  float* first;
  int64_t key, value;
  Reader reader;

  static int64_t size(int64_t key, int64_t value) {
    return kept_floats(key, value, kKeptType) + kSquareFloats +
           kept_floats(kChunk, value, DType::kF32);
  }
  static int64_t floats(int64_t tokens, int64_t key, int64_t value) {
    return (chunk_count(tokens) + 1) * size(key, value);
  }
  float* chunk(int64_t c) const { return first + c * size(key, value); }
  tile::Out state(int64_t c) const {
    if (first == nullptr) return {};
    return kept_matrix(chunk(c), key, value, kKeptType, reader);
  }
  programs::DeltaKept<Engine> rest(int64_t c, int64_t count) const {
    float* t = chunk(c) + kept_floats(key, value, kKeptType);
    return {kept_square(t, count, reader),
            kept_matrix(t + kSquareFloats, count, value, DType::kF32, reader)};
  }
};

void start(Engine& e, const DeltaTask& task, const Kept& kept, ForwardSpace& w) {
  e.load(w.m, task.initial_state);  // zeros when empty
  if (kept.first != nullptr) e.run(tile::kFull, tile::take(w.m), tile::store(kept.state(0)));
}

void forward(const DeltaTask& task, const DeltaOutputs& outputs, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  const Kept kept{outputs.kept, key, value, Reader::kMuchLater};
  Engine e;
  ForwardSpace w;
  place(w, Sizes{kChunk, key, value}, scratch);
  start(e, task, kept, w);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t c = begin / kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, scratch);
    expect(e, task, begin + kChunk);
    if (outputs.out.empty()) {
      programs::delta_pass(e, chunk_of(task, begin, count), w);
      continue;
    }
    e.soon(outputs.out.row_range(begin, count));
    programs::delta_forward(e, chunk_of(task, begin, count), outputs.out.row_range(begin, count),
                            kept.state(c + 1), w);
    if (outputs.kept != nullptr) programs::delta_keep(e, kept.rest(c, count), w);
  }
  streams_end();
  if (!outputs.final_state.empty())
    e.run(tile::kFull, tile::take(w.m), tile::store(outputs.final_state));
}

int64_t backward_scratch(int64_t tokens, int64_t key, int64_t value) {
  const int64_t back = scratch_of<BackwardSpace>(key, value);
  const int64_t ahead = scratch_of<ForwardSpace>(key, value);
  return Kept::floats(tokens, key, value) + (back > ahead ? back : ahead);
}

void rebuild(const DeltaTask& task, const Kept& kept, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  Engine e;
  ForwardSpace w;
  place(w, Sizes{kChunk, key, value}, scratch);
  start(e, task, kept, w);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t c = begin / kChunk, count = chunk_length(begin, tokens), next = begin + count;
    place(w, Sizes{count, key, value}, scratch);
    if (next < tokens) {
      e.soon(task.k.row_range(next, chunk_length(next, tokens)));
      e.soon(task.v.row_range(next, chunk_length(next, tokens)));
    }
    e.soon(kept.state(c + 1));
    programs::delta_rebuild(e, chunk_of(task, begin, count), kept.rest(c, count), kept.state(c + 1),
                            w);
  }
}

// The gradient of the state behind the last chunk, and its product with that state.
void start_backward(Engine& e, const tile::In& d_final_state, const tile::In& state,
                    BackwardSpace& w) {
  e.load(w.dm, d_final_state);
  e.fill(w.product, [&](auto) { return e.number(0.0f); });
  e.run(tile::kFull, tile::take(w.dm),
        tile::row_sum(w.product, [&](auto i, auto j, auto x) { return x * e.at(state, i, j); }));
}

void backward(const DeltaTask& task, const DeltaGradients& g, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  const int64_t chunks = chunk_count(tokens);
  const Kept kept{g.kept == nullptr ? scratch : const_cast<float*>(g.kept), key, value,
                  Reader::kSoon};
  float* work = scratch + Kept::floats(tokens, key, value);
  if (g.kept == nullptr) rebuild(task, kept, work);

  Engine e;
  BackwardSpace w;
  place(w, Sizes{kChunk, key, value}, work);
  start_backward(e, g.d_final_state, readable(kept.state(chunks)), w);
  for (int64_t c = chunks - 1; c >= 0; --c) {
    const int64_t begin = c * kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, work);
    const auto rest = kept.rest(c, count);
    const programs::DeltaChunkGradients<Engine> part{
        g.d_out.row_range(begin, count), readable(kept.state(c)),      readable(rest.t),
        readable(rest.errors),           g.dq.row_range(begin, count), g.dk.row_range(begin, count),
        g.dv.row_range(begin, count),    g.d_beta.from(begin),         g.d_log_decay.from(begin)};
    expect(e, task, begin - kChunk);
    if (c > 0) {
      e.soon(g.d_out.row_range(begin - kChunk, kChunk));
      e.soon(kept.state(c - 1));
    }
    e.soon(g.dv.row_range(begin, count));
    e.soon(g.dk.row_range(begin, count));
    e.soon(g.dq.row_range(begin, count));
    programs::delta_backward(e, chunk_of(task, begin, count), part, w);
  }
  if (!g.d_initial_state.empty())
    e.run(tile::kFull, tile::take(w.dm), tile::store(g.d_initial_state));
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const DeltaTable& table(ThisIsa, const DeltaTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr DeltaTable table{isa::Kept::floats, isa::scratch_of<isa::ForwardSpace>,
                                    isa::forward, isa::backward_scratch, isa::backward};
  return table;
}

}  // namespace weft::kernels
