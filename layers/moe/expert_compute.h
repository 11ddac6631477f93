#pragma once

#include <functional>
#include <memory>

#include "core/parameter.h"
#include "kernels/matrix/block_sparse.h"
#include "kernels/matrix/gemm.h"
#include "kernels/routing/expert_order.h"
#include "layers/context/build.h"

namespace weft {

struct ExpertWeights {
  Parameter& in;    // [experts, pre-activation width, hidden]
  Parameter& down;  // [experts, hidden, ffn]
};

// Where the rows of the experts' hidden layers lie during one pass.
struct ExpertRows {
  const kernels::ExpertOrder& order;
  int64_t pairs;   // (token, expert) pairs that are computed
  int64_t hidden;  // rows of hidden layers: pairs, and padding where there is any
  kernels::BlockTopology topology{};  // block_sparse only
};

// The six products of the experts, in one of several ways. Pairs are sorted by expert. Token rows
// are `arranged` before they enter: left as they are, or gathered; never kept from forward to
// backward.
//   grouped       one ragged product over all experts; rows are gathered while they are packed for
//   it loop          rows gathered, then a plain product per expert that has any: the baseline
//   block_sparse  rows gathered and padded to whole blocks, block-sparse products over them
//   (MegaBlocks)
class ExpertCompute {
 public:
  enum class Pass : uint8_t { kForward, kBackward };
  virtual ~ExpertCompute() = default;

  virtual ExpertRows rows(const kernels::ExpertOrder& order) const {
    return {order, order.offsets.back(), order.offsets.back()};
  }
  virtual Tensor arrange(Exec& exec, const ExpertRows& rows, const Tensor& tokens) const = 0;

  // hidden [rows.hidden, ..] = arranged tokens times w_in^T (forward), or times w_down (backward)
  virtual void enter(Exec& exec, const ExpertRows& rows, Pass pass, const Tensor& arranged,
                     const Tensor& hidden) const = 0;
  // out [rows.pairs, model width] = hidden times w_down^T (forward), or times w_in (backward)
  virtual void leave(Exec& exec, const ExpertRows& rows, Pass pass, const Tensor& hidden,
                     const Tensor& out) const = 0;
  // gradient of w_in += d_pre^T x, gradient of w_down += dy^T h, expert by expert; x and dy
  // arranged
  virtual void add_in_gradient(Exec& exec, const ExpertRows& rows, const Tensor& d_pre,
                               const Tensor& x) const = 0;
  virtual void add_down_gradient(Exec& exec, const ExpertRows& rows, const Tensor& dy,
                                 const Tensor& h) const = 0;

  // One f32 per pair as one per hidden row (0 for padding), and back.
  virtual Tensor spread(Exec&, const ExpertRows&, const Tensor& per_pair) const { return per_pair; }
  virtual Tensor collect(Exec&, const ExpertRows&, const Tensor& per_row) const { return per_row; }
};

// Rows of a block: what one thread multiplies at a time, and half of what a group wastes on
// average.
inline constexpr int64_t kExpertBlock = 64;

// The plain product that `loop` calls; another library's where two are compared.
using PlainGemm =
    std::function<void(Exec&, ConstView a, ConstView b, View c, kernels::GemmOptions)>;

std::unique_ptr<ExpertCompute> make_grouped_experts(const ExpertWeights& weights);
std::unique_ptr<ExpertCompute> make_loop_experts(const ExpertWeights& weights, PlainGemm gemm = {});
std::unique_ptr<ExpertCompute> make_block_sparse_experts(const ExpertWeights& weights,
                                                         int64_t block = kExpertBlock);
std::unique_ptr<ExpertCompute> make_expert_compute(ExpertMode mode, const ExpertWeights& weights);

// The index of gather_rows and of gathering products. The order may have more rows than are
// computed.
inline Tensor token_of_row(const ExpertRows& rows) { return rows.order.token.slice(0, rows.pairs); }

}  // namespace weft
