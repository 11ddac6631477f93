#include "kernels/programs/diagonal_scan.h"
#include "kernels/programs/diagonal_scan_backward.h"
#include "kernels/scan/cpu/isa/blocked_sizes.h"
#include "kernels/scan/cpu/isa/diagonal_walk.h"
#include "kernels/tile/cpu_walk.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

struct DiagonalRule {
  using Engine = WalkEngine;
  using Sizes = BlockedSizes;
  using Chunk = programs::DiagonalChunk<Engine>;
  using ForwardSpace = programs::DiagonalSpace<Engine, Sizes>;
  using StateSpace = programs::DiagonalStateSpace<Engine, Sizes>;
  using BackwardSpace = programs::DiagonalBackwardSpace<Engine, Sizes>;

  static Chunk chunk_of(const DiagonalTask& task, int64_t begin, int64_t count) {
    return {task.q.row_range(begin, count),
            task.k.row_range(begin, count),
            task.v.row_range(begin, count),
            task.log_decay.row_range(begin, count),
            task.bonus,
            task.scale};
  }

  // The weight of a token's own key: the bonus, or 1.
  template <class Vec>
  static void load_bonus(Engine& e, const DiagonalTask& task, Vec& u) {
    if (task.bonus.empty()) {
      e.fill(u, [&](auto) { return e.number(1.0f); });
    } else {
      e.load(u, task.bonus);
    }
  }

  static void start(Engine& e, const DiagonalTask& task, ForwardSpace& w) {
    load_bonus(e, task, w.u);
  }
  static void forward(Engine& e, const Chunk& chunk, const tile::Out& out, const tile::Out& state,
                      ForwardSpace& w) {
    programs::diagonal_forward(e, chunk, out, state, w);
  }
  static void state(Engine& e, const Chunk& chunk, const tile::Out& state, StateSpace& w) {
    programs::diagonal_state(e, chunk, state, w);
  }

  static void start_backward(Engine& e, const DiagonalTask& task, const tile::In& last,
                             BackwardSpace& w) {
    load_bonus(e, task, w.u);
    e.fill(w.du, [&](auto) { return e.number(0.0f); });
    e.fill(w.product, [&](auto) { return e.number(0.0f); });
    e.run(tile::kFull, tile::take(w.dm),
          tile::row_sum(w.product, [&](auto i, auto j, auto x) { return x * e.at(last, i, j); }));
  }
  static void backward(Engine& e, const Chunk& chunk, const DiagonalGradients& g, int64_t begin,
                       int64_t count, const tile::In& state, BackwardSpace& w) {
    programs::diagonal_backward(
        e, chunk,
        {g.d_out.row_range(begin, count), state, g.dq.row_range(begin, count),
         g.dk.row_range(begin, count), g.dv.row_range(begin, count),
         g.d_log_decay.row_range(begin, count)},
        w);
  }
  static void finish_backward(Engine& e, const DiagonalGradients& g, BackwardSpace& w) {
    e.save(w.du, g.d_bonus);
  }
};

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const DiagonalTable& table(ThisIsa, const DiagonalTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  return isa::DiagonalWalk<isa::DiagonalRule>::kTable;
}

}  // namespace weft::kernels
