#pragma once

#include "kernels/scan/cpu/isa/diagonal_scan.h"
#include "kernels/tile/cpu_states.h"

// The driver of scans with decays per channel: the CPU walks the chunks of a head one after the
// other, the state staying near the core. A Rule says what its program is:
//   Engine, ForwardSpace, StateSpace, BackwardSpace, Sizes
//   chunk_of(task, begin, count)
//   start(e, task, w)                                 before the first chunk
//   forward(e, chunk, out, state after, w)            state(e, chunk, state after, w)
//   start_backward(e, task, gradients, last state, w)
//   backward(e, chunk, gradients, begin, count, state before, w)
//   finish_backward(e, gradients, w)
// Include only from cpu/isa/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

template <class Rule>
struct DiagonalWalk {
  using Engine = typename Rule::Engine;
  using Sizes = typename Rule::Sizes;

  template <class Space>
  static int64_t scratch_of(int64_t key, int64_t value) {
    Space w;
    return place(w, Sizes{kChunk, key, value}, nullptr);
  }
  static int64_t forward_scratch(int64_t key, int64_t value) {
    const int64_t whole = scratch_of<typename Rule::ForwardSpace>(key, value);
    const int64_t states = scratch_of<typename Rule::StateSpace>(key, value);
    return whole > states ? whole : states;
  }
  static int64_t backward_scratch(int64_t tokens, int64_t key, int64_t value) {
    const int64_t back = scratch_of<typename Rule::BackwardSpace>(key, value);
    const int64_t ahead = scratch_of<typename Rule::StateSpace>(key, value);
    return States::floats(tokens, key, value) + (back > ahead ? back : ahead);
  }

  // Tells the engine which rows the chunk at `begin` will read.
  static void expect(Engine& e, const DiagonalTask& task, int64_t begin) {
    if (begin < 0 || begin >= task.q.rows) return;
    const int64_t count = chunk_length(begin, task.q.rows);
    for (const tile::In* rows : {&task.q, &task.k, &task.v, &task.log_decay, &task.value_log_decay})
      e.soon(rows->row_range(begin, count));
  }

  static void forward(const DiagonalTask& task, const DiagonalOutputs& outputs, float* scratch) {
    const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
    if (outputs.out.empty())
      return walk_states(task, {nullptr, key, value, Reader::kSoon}, outputs.final_state, scratch);
    const States states{outputs.kept, key, value, Reader::kMuchLater};
    Engine e;
    typename Rule::ForwardSpace w;
    place(w, Sizes{kChunk, key, value}, scratch);
    Rule::start(e, task, w);
    start_states(e, task.initial_state, states, w.m);
    for (int64_t begin = 0; begin < tokens; begin += kChunk) {
      const int64_t count = chunk_length(begin, tokens);
      place(w, Sizes{count, key, value}, scratch);
      expect(e, task, begin + kChunk);
      e.soon(outputs.out.row_range(begin, count));
      Rule::forward(e, Rule::chunk_of(task, begin, count), outputs.out.row_range(begin, count),
                    states.at(begin / kChunk + 1), w);
    }
    streams_end();
    if (!outputs.final_state.empty())
      e.run(tile::kFull, tile::take(w.m), tile::store(outputs.final_state));
  }

  // The states alone: q's numbers are not read.
  static void walk_states(const DiagonalTask& task, const States& states, const tile::Out& last,
                          float* scratch) {
    const int64_t tokens = task.q.rows;
    Engine e;
    typename Rule::StateSpace w;
    place(w, Sizes{kChunk, states.key, states.value}, scratch);
    start_states(e, task.initial_state, states, w.m);
    for (int64_t begin = 0; begin < tokens; begin += kChunk) {
      const int64_t count = chunk_length(begin, tokens);
      place(w, Sizes{count, states.key, states.value}, scratch);
      expect(e, task, begin + kChunk);
      const tile::Out after = states.at(begin / kChunk + 1);
      e.soon(after);
      Rule::state(e, Rule::chunk_of(task, begin, count), after, w);
    }
    if (!last.empty()) e.run(tile::kFull, tile::take(w.m), tile::store(last));
  }

  static void backward(const DiagonalTask& task, const DiagonalGradients& g, float* scratch) {
    const int64_t tokens = task.q.rows, key = task.q.columns, value = task.v.columns;
    const int64_t chunks = chunk_count(tokens);
    const States states{g.kept == nullptr ? scratch : const_cast<float*>(g.kept), key, value,
                        Reader::kSoon};
    float* work = scratch + States::floats(tokens, key, value);
    if (g.kept == nullptr) walk_states(task, states, {}, work);

    Engine e;
    typename Rule::BackwardSpace w;
    place(w, Sizes{kChunk, key, value}, work);
    e.load(w.dm, g.d_final_state);  // zeros when empty
    Rule::start_backward(e, task, readable(states.at(chunks)), w);
    for (int64_t c = chunks - 1; c >= 0; --c) {
      const int64_t begin = c * kChunk, count = chunk_length(begin, tokens);
      place(w, Sizes{count, key, value}, work);
      expect(e, task, begin - kChunk);
      if (c > 0) {
        e.soon(g.d_out.row_range(begin - kChunk, kChunk));
        e.soon(states.at(c - 1));
      }
      Rule::backward(e, Rule::chunk_of(task, begin, count), g, begin, count, readable(states.at(c)),
                     w);
    }
    Rule::finish_backward(e, g, w);
    if (!g.d_initial_state.empty())
      e.run(tile::kFull, tile::take(w.dm), tile::store(g.d_initial_state));
  }

  static constexpr DiagonalTable kTable{States::floats, forward_scratch, forward, backward_scratch,
                                        backward};
};

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
