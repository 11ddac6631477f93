#include "kernels/scan/cpu/isa/momentum_scan.h"

#include "kernels/programs/momentum_scan.h"
#include "kernels/programs/momentum_scan_backward.h"
#include "kernels/scan/cpu/isa/momentum_coefficients.h"
#include "kernels/tile/cpu.h"

// The CPU walks the chunks of a head one after the other, the states staying near the core.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

using programs::Momentum;
constexpr int64_t kChunk = kMomentumChunk;

struct Sizes {
  int64_t chunk_, key_, value_;
  WEFT_INLINE int64_t chunk() const { return chunk_; }
  WEFT_INLINE int64_t key() const { return key_; }
  WEFT_INLINE int64_t value() const { return value_; }
};
using Chunk = programs::MomentumChunk<Engine>;
using ForwardSpace = programs::MomentumSpace<Engine, Sizes>;
using BackwardSpace = programs::MomentumBackwardSpace<Engine, Sizes>;

int64_t chunk_length(int64_t begin, int64_t tokens) {
  return tokens - begin < kChunk ? tokens - begin : kChunk;
}

template <class Space>
int64_t scratch_of(int64_t key, int64_t value) {
  Space w;
  return place(w, Sizes{kChunk, key, value}, nullptr);
}

Chunk chunk_of(const MomentumTask& task, int64_t begin, const MomentumCoefficients& c) {
  const int64_t n = c.n;
  const auto square = [n](const float* data) -> tile::In {
    return {data, kChunk, n, n, DType::kF32};
  };
  const int64_t a = c.moves_anchor() ? c.anchor : 0;
  return {.q = task.q.row_range(begin, n),
          .k = task.k.row_range(begin, n),
          .v = task.v.row_range(begin, n),
          .read = square(c.read),
          .out = square(c.g + kChunk),
          .b_read = {c.b_read, 1},
          .f_read = {c.f_read, 1},
          .before = {c.before, 1},
          .b_out = {c.b + 1, 1},
          .f_out = {c.f + 1, 1},
          .to_m = {c.g + n * kChunk, 1},
          .to_s = {c.h + n * kChunk, 1},
          .to_a = {c.g + a * kChunk, 1},
          .b = c.b[n],
          .f = c.f[n],
          .p = c.p[n],
          .b_a = c.b[a],
          .f_a = c.f[a],
          .reads_anchor = c.reads_anchor(),
          .moves_anchor = c.moves_anchor(),
          .scale = task.scale};
}

// Without momentum nothing reads the S that enters.
bool has_momentum(const MomentumTask& task) { return !task.eta.empty(); }
// The tokens, if any, end a mini-batch: what leaves as the anchor is M.
bool is_border(const MomentumTask& task) {
  return task.q.rows > 0 && (task.before + task.q.rows) % task.mini_batch == 0;
}

tile::In readable(const tile::Out& view) {
  return {view.data, view.stride, view.rows, view.columns, view.dtype};
}

// The states before every chunk, laid out as operands: M, S, the anchor.
struct Kept {
  float* first;
  int64_t key, value;
  static int64_t one(int64_t key, int64_t value) { return round_up(key, 4) * padded_width(value); }
  static int64_t size(int64_t chunks, int64_t key, int64_t value) {
    return 3 * chunks * one(key, value);
  }
  tile::Out at(int64_t chunk, int64_t part) const {
    return {first + (3 * chunk + part) * one(key, value), padded_width(value), key, value,
            DType::kF32};
  }
};
int64_t chunks_of(int64_t tokens) { return (tokens + kChunk - 1) / kChunk; }
int64_t kept_floats(const MomentumTask& task) {
  return Kept::size(chunks_of(task.q.rows), task.q.columns, task.v.columns);
}

template <class Op>
void save(Engine& e, Op& op, const tile::Out& to) {
  if (!to.empty()) e.run(tile::kFull, tile::take(op), tile::store(to));
}
void keep(Engine& e, const MomentumTask& task, ForwardSpace& w, const Kept& kept, int64_t chunk) {
  save(e, w.m, kept.at(chunk, 0));
  if (has_momentum(task)) save(e, w.s, kept.at(chunk, 1));
  if (task.mini_batch > 1) save(e, w.a, kept.at(chunk, 2));
}

void enter(Engine& e, const MomentumTask& task, ForwardSpace& w, float* scratch) {
  place(w, Sizes{kChunk, task.q.columns, task.v.columns}, scratch);
  e.load(w.m, task.entering.m), e.load(w.s, task.entering.s);  // zeros when empty
  e.load(w.a, task.entering.anchor.empty() ? task.entering.m : task.entering.anchor);
}

template <Momentum momentum>
void forward_walk(const MomentumTask& task, const MomentumOutputs& outputs, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  Engine e;
  ForwardSpace w;
  MomentumCoefficients c;
  enter(e, task, w, scratch);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, scratch);
    momentum_coefficients(task, begin, count, c);
    if (outputs.out.empty()) {
      programs::momentum_pass<momentum>(e, chunk_of(task, begin, c), w);
      continue;
    }
    if (outputs.kept != nullptr) keep(e, task, w, {outputs.kept, key, value}, begin / kChunk);
    programs::momentum_forward<momentum>(e, chunk_of(task, begin, c),
                                         outputs.out.row_range(begin, count), w);
  }
  save(e, w.m, outputs.leaving.m);
  save(e, w.s, outputs.leaving.s);
  save(e, is_border(task) ? w.m : w.a, outputs.leaving.anchor);
}

void forward(const MomentumTask& task, const MomentumOutputs& outputs, float* scratch) {
  const bool with_s = has_momentum(task) || !outputs.leaving.s.empty();
  with_s ? forward_walk<Momentum::kYes>(task, outputs, scratch)
         : forward_walk<Momentum::kNo>(task, outputs, scratch);
}

int64_t backward_scratch(int64_t tokens, int64_t key, int64_t value) {
  const int64_t ahead = scratch_of<ForwardSpace>(key, value),
                back = scratch_of<BackwardSpace>(key, value);
  return Kept::size(chunks_of(tokens), key, value) + (ahead > back ? ahead : back);
}

template <Momentum momentum>
void rebuild(const MomentumTask& task, const Kept& kept, MomentumCoefficients& c, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  Engine e;
  ForwardSpace w;
  enter(e, task, w, scratch);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, scratch);
    keep(e, task, w, kept, begin / kChunk);
    if (begin + count == tokens) break;
    momentum_coefficients(task, begin, count, c);
    programs::momentum_pass<momentum>(e, chunk_of(task, begin, c), w);
  }
}

programs::MomentumChunkGradients<Engine> gradients_of(const MomentumTask& task,
                                                      const MomentumGradients& g, const Kept& kept,
                                                      int64_t begin, int64_t n,
                                                      MomentumCoefficientGradients& d) {
  const int64_t chunk = begin / kChunk;
  const auto square = [n](float* data) -> tile::Out { return {data, kChunk, n, n, DType::kF32}; };
  return {.d_out = g.d_out.row_range(begin, n),
          .m = readable(kept.at(chunk, 0)),
          .s = has_momentum(task) ? readable(kept.at(chunk, 1)) : tile::In{},
          .a = readable(kept.at(chunk, 2)),
          .dq = g.dq.row_range(begin, n),
          .dk = g.dk.row_range(begin, n),
          .dv = g.dv.row_range(begin, n),
          .d_out_g = square(d.out_g),
          .d_read_g = square(d.read_g),
          .b_out = {d.b_out, 1},
          .f_out = {d.f_out, 1},
          .b_read = {d.b_read, 1},
          .f_read = {d.f_read, 1},
          .to_m = {d.to_m, 1},
          .to_s = {d.to_s, 1},
          .to_a = {d.to_a, 1}};
}

// The anchor is M: its gradient is M's.
void join_anchor(Engine& e, BackwardSpace& w) {
  e.run(tile::kFull, tile::take(w.dm),
        tile::map([&](auto i, auto j, auto x) { return x + w.da(i, j); }), tile::put(w.dm));
  e.load(w.da, tile::In{});
}

template <Momentum momentum>
void backward_walk(const MomentumTask& task, const MomentumGradients& g, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  const int64_t chunks = chunks_of(tokens);
  float* work = scratch + Kept::size(chunks, key, value);
  MomentumCoefficients c;
  MomentumCoefficientGradients d{};  // without momentum, its own stay zero
  const Kept kept{g.kept == nullptr ? scratch : const_cast<float*>(g.kept), key, value};
  if (g.kept == nullptr) rebuild<momentum>(task, kept, c, work);
  Engine e;
  BackwardSpace w;
  place(w, Sizes{kChunk, key, value}, work);
  e.load(w.dm, g.d_leaving.m), e.load(w.ds, g.d_leaving.s), e.load(w.da, g.d_leaving.anchor);
  if (is_border(task)) join_anchor(e, w);
  for (int64_t i = chunks; i-- > 0;) {
    const int64_t begin = i * kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, work);
    momentum_coefficients(task, begin, count, c);
    auto part = gradients_of(task, g, kept, begin, count, d);
    programs::momentum_backward<momentum>(e, chunk_of(task, begin, c), part, w);
    momentum_gather(c, {part.b, part.f, part.p, part.b_a, part.f_a}, d);
    momentum_coefficients_backward(c, begin, d, {g.d_theta, g.d_alpha, g.d_eta});
  }
  if (task.entering.anchor.empty()) join_anchor(e, w);
  save(e, w.dm, g.entering.m);
  save(e, w.ds, g.entering.s);
  save(e, w.da, g.entering.anchor);
}

void backward(const MomentumTask& task, const MomentumGradients& g, float* scratch) {
  const bool with_s = has_momentum(task) || !g.d_leaving.s.empty() || !g.entering.s.empty();
  with_s ? backward_walk<Momentum::kYes>(task, g, scratch)
         : backward_walk<Momentum::kNo>(task, g, scratch);
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const MomentumTable& table(ThisIsa, const MomentumTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr MomentumTable table{isa::kept_floats, isa::scratch_of<isa::ForwardSpace>,
                                       isa::forward, isa::backward_scratch, isa::backward};
  return table;
}

}  // namespace weft::kernels
