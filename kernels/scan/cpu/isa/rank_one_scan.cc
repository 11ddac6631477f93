#include "kernels/scan/cpu/isa/rank_one_scan.h"

#include "kernels/programs/rank_one_scan.h"
#include "kernels/programs/rank_one_scan_backward.h"
#include "kernels/scan/cpu/isa/blocked_sizes.h"
#include "kernels/tile/cpu_states.h"
#include "kernels/tile/cpu_two_queries.h"

// The CPU walks the chunks of a head one after the other, the state staying near the core.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

using programs::RankOne;

using Sizes = BlockedSizes;
using Chunk = programs::RankOneChunk<TwoQueryEngine>;
template <RankOne form>
using ForwardSpace = programs::RankOneSpace<TwoQueryEngine, Sizes, form>;
template <RankOne form>
using BackwardSpace = programs::RankOneBackwardSpace<TwoQueryEngine, Sizes, form>;

Chunk chunk_of(const RankOneTask& task, int64_t begin, int64_t count) {
  return {task.q.row_range(begin, count),     task.k.row_range(begin, count),
          task.v.row_range(begin, count),     task.log_decay.row_range(begin, count),
          task.alpha.row_range(begin, count), task.beta.row_range(begin, count),
          task.strength.from(begin),          task.scale};
}

// Tells the engine which rows the chunk at `begin` will read.
void expect(TwoQueryEngine& e, const RankOneTask& task, int64_t begin) {
  if (begin < 0 || begin >= task.q.rows) return;
  const int64_t count = chunk_length(begin, task.q.rows);
  for (const tile::In* view : {&task.q, &task.k, &task.v, &task.log_decay, &task.alpha, &task.beta})
    e.soon(view->row_range(begin, count));
}

template <class Space>
int64_t scratch_of(int64_t key, int64_t value) {
  Space w;
  return place(w, Sizes{kChunk, key, value}, nullptr);
}

// Results of the walk from the start that the walk from the end reads: for every chunk the state
// before it, Z, T and the scores, and the state after the last.
template <RankOne form>
struct Kept {
  float* first;
  int64_t key, value;
  Reader reader;

  static constexpr int64_t kSquares = form == RankOne::kGeneral ? 4 : 2;
  static int64_t size(int64_t key, int64_t value) {
    return kept_floats(key, value, kKeptType) + kept_floats(kChunk, value, kKeptType) +
           kSquares * kSquareFloats;
  }
  static int64_t floats(int64_t tokens, int64_t key, int64_t value) {
    return (chunk_count(tokens) + 1) * size(key, value);
  }
  float* chunk(int64_t c) const { return first + c * size(key, value); }
  tile::Out state(int64_t c) const {
    if (first == nullptr) return {};
    return kept_matrix(chunk(c), key, value, kKeptType, reader);
  }
  programs::RankOneKept<TwoQueryEngine> rest(int64_t c, int64_t count) const {
    float* z = chunk(c) + kept_floats(key, value, kKeptType);
    float* squares = z + kept_floats(kChunk, value, kKeptType);
    const auto matrix = [&](int64_t n) -> tile::Out {
      if (n >= kSquares) return {};
      return kept_square(squares + n * kSquareFloats, count, reader);
    };
    return {matrix(0), kept_matrix(z, count, value, kKeptType, reader), matrix(1), matrix(2),
            matrix(3)};
  }
};

template <RankOne form>
void start(TwoQueryEngine& e, const RankOneTask& task, const Kept<form>& kept,
           ForwardSpace<form>& w) {
  e.load(w.m, task.initial_state);  // zeros when empty
  if (kept.first != nullptr) e.run(tile::kFull, tile::take(w.m), tile::store(kept.state(0)));
}

template <RankOne form>
void forward(const RankOneTask& task, const RankOneOutputs& outputs, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  const Kept<form> kept{outputs.kept, key, value, Reader::kMuchLater};
  TwoQueryEngine e;
  ForwardSpace<form> w;
  place(w, Sizes{kChunk, key, value}, scratch);
  start(e, task, kept, w);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t c = begin / kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, scratch);
    expect(e, task, begin + kChunk);
    if (outputs.out.empty()) {
      programs::rank_one_pass(e, chunk_of(task, begin, count), w);
      continue;
    }
    e.soon(outputs.out.row_range(begin, count));
    programs::rank_one_forward(e, chunk_of(task, begin, count), outputs.out.row_range(begin, count),
                               kept.state(c + 1), w);
    if (outputs.kept != nullptr) programs::rank_one_keep(e, kept.rest(c, count), w);
  }
  streams_end();
  if (!outputs.final_state.empty())
    e.run(tile::kFull, tile::take(w.m), tile::store(outputs.final_state));
}

template <RankOne form>
int64_t backward_scratch(int64_t tokens, int64_t key, int64_t value) {
  const int64_t back = scratch_of<BackwardSpace<form>>(key, value);
  const int64_t ahead = scratch_of<ForwardSpace<form>>(key, value);
  return Kept<form>::floats(tokens, key, value) + (back > ahead ? back : ahead);
}

template <RankOne form>
void rebuild(const RankOneTask& task, const Kept<form>& kept, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  TwoQueryEngine e;
  ForwardSpace<form> w;
  place(w, Sizes{kChunk, key, value}, scratch);
  start(e, task, kept, w);
  for (int64_t begin = 0; begin < tokens; begin += kChunk) {
    const int64_t c = begin / kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, scratch);
    expect(e, task, begin + kChunk);
    e.soon(kept.state(c + 1));
    programs::rank_one_rebuild(e, chunk_of(task, begin, count), kept.rest(c, count),
                               kept.state(c + 1), w);
  }
}

template <RankOne form>
programs::RankOneChunkGradients<TwoQueryEngine> gradients_of(const RankOneGradients& g,
                                                             const Kept<form>& kept, int64_t begin,
                                                             int64_t count) {
  const auto rest = kept.rest(begin / kChunk, count);
  return {g.d_out.row_range(begin, count),
          readable(kept.state(begin / kChunk)),
          readable(rest.t),
          readable(rest.z),
          readable(rest.qb),
          readable(rest.qk),
          readable(rest.ak),
          g.dq.row_range(begin, count),
          g.dk.row_range(begin, count),
          g.dv.row_range(begin, count),
          g.d_log_decay.row_range(begin, count),
          g.d_alpha.row_range(begin, count),
          g.d_beta.row_range(begin, count),
          g.d_strength.from(begin)};
}

template <RankOne form>
void backward(const RankOneTask& task, const RankOneGradients& g, float* scratch) {
  const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
  const int64_t chunks = chunk_count(tokens);
  const Kept<form> kept{g.kept == nullptr ? scratch : const_cast<float*>(g.kept), key, value,
                        Reader::kSoon};
  float* work = scratch + Kept<form>::floats(tokens, key, value);
  if (g.kept == nullptr) rebuild(task, kept, work);

  TwoQueryEngine e;
  BackwardSpace<form> w;
  place(w, Sizes{kChunk, key, value}, work);
  const tile::In last = readable(kept.state(chunks));
  e.load(w.dm, g.d_final_state);
  e.fill(w.product, [&](auto) { return e.number(0.0f); });
  e.run(tile::kFull, tile::take(w.dm),
        tile::row_sum(w.product, [&](auto i, auto j, auto x) { return x * e.at(last, i, j); }));
  for (int64_t c = chunks - 1; c >= 0; --c) {
    const int64_t begin = c * kChunk, count = chunk_length(begin, tokens);
    place(w, Sizes{count, key, value}, work);
    expect(e, task, begin - kChunk);
    if (c > 0) {
      e.soon(g.d_out.row_range(begin - kChunk, kChunk));
      e.soon(kept.state(c - 1));
    }
    programs::rank_one_backward(e, chunk_of(task, begin, count),
                                gradients_of(g, kept, begin, count), w);
  }
  if (!g.d_initial_state.empty())
    e.run(tile::kFull, tile::take(w.dm), tile::store(g.d_initial_state));
}

template <RankOne form>
constexpr RankOneTable table_of() {
  return {Kept<form>::floats, scratch_of<ForwardSpace<form>>, forward<form>, backward_scratch<form>,
          backward<form>};
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const RankOneTables& table(ThisIsa, const RankOneTables*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr RankOneTables tables{isa::table_of<programs::RankOne::kGeneral>(),
                                        isa::table_of<programs::RankOne::kDelta>()};
  return tables;
}

}  // namespace weft::kernels
