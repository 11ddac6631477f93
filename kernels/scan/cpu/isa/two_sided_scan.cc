#include "kernels/scan/cpu/isa/two_sided_scan.h"

#include "kernels/programs/two_sided_scan.h"
#include "kernels/programs/two_sided_scan_backward.h"
#include "kernels/scan/cpu/isa/blocked_sizes.h"
#include "kernels/scan/cpu/isa/diagonal_walk.h"
#include "kernels/tile/cpu_two_sided.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

struct TwoSidedRule {
  using Engine = TwoSidedEngine;
  using Sizes = BlockedSizes;
  using Chunk = programs::TwoSidedChunk<Engine>;
  using ForwardSpace = programs::TwoSidedSpace<Engine, Sizes>;
  using StateSpace = programs::TwoSidedStateSpace<Engine, Sizes>;
  using BackwardSpace = programs::TwoSidedBackwardSpace<Engine, Sizes>;

  static Chunk chunk_of(const DiagonalTask& task, int64_t begin, int64_t count) {
    return {task.q.row_range(begin, count),
            task.k.row_range(begin, count),
            task.v.row_range(begin, count),
            task.log_decay.row_range(begin, count),
            task.value_log_decay.row_range(begin, count),
            task.scale};
  }

  static void start(Engine&, const DiagonalTask&, ForwardSpace&) {}
  static void forward(Engine& e, const Chunk& chunk, const tile::Out& out, const tile::Out& state,
                      ForwardSpace& w) {
    programs::two_sided_forward(e, chunk, out, state, w);
  }
  static void state(Engine& e, const Chunk& chunk, const tile::Out& state, StateSpace& w) {
    programs::two_sided_state(e, chunk, state, w);
  }

  static void start_backward(Engine& e, const DiagonalTask&, const tile::In& last,
                             BackwardSpace& w) {
    e.fill(w.key_product, [&](auto) { return e.number(0.0f); });
    e.fill(w.value_product, [&](auto) { return e.number(0.0f); });
    const auto product = [&](auto i, auto j, auto x) { return x * e.at(last, i, j); };
    e.run(tile::kFull, tile::take(w.dm), tile::row_sum(w.key_product, product),
          tile::column_sum(w.value_product, product));
  }
  static void backward(Engine& e, const Chunk& chunk, const DiagonalGradients& g, int64_t begin,
                       int64_t count, const tile::In& state, BackwardSpace& w) {
    programs::two_sided_backward(
        e, chunk,
        {g.d_out.row_range(begin, count), state, g.dq.row_range(begin, count),
         g.dk.row_range(begin, count), g.dv.row_range(begin, count),
         g.d_log_decay.row_range(begin, count), g.d_value_log_decay.row_range(begin, count)},
        w);
  }
  static void finish_backward(Engine&, const DiagonalGradients&, BackwardSpace&) {}
};

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const TwoSidedTable& table(ThisIsa, const TwoSidedTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr TwoSidedTable table{isa::DiagonalWalk<isa::TwoSidedRule>::kTable};
  return table;
}

}  // namespace weft::kernels
