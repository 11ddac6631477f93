#include "kernels/rows/gather.h"
#include "layers/moe/packed_experts.h"

namespace weft {
namespace {

// Padding enters as zero rows. Every activation maps zero to zero, so padded rows of hidden layers
// and of their gradients are zero too and add nothing to the gradients of the weights.
class BlockSparseExperts final : public ExpertCompute {
 public:
  BlockSparseExperts(const ExpertWeights& weights, int64_t block)
      : packed_(weights), block_(block) {}

  ExpertRows rows(const kernels::ExpertOrder& order) const override {
    ExpertRows out{order, order.offsets.back(), 0, kernels::block_topology(order.offsets, block_)};
    out.hidden = out.topology.padded_rows();
    return out;
  }

  Tensor arrange(Exec& exec, const ExpertRows& rows, const Tensor& tokens) const override {
    const Tensor gathered = exec.empty({rows.hidden, tokens.shape().back()}, tokens.dtype());
    const Tensor index = exec.host({rows.hidden}, DType::kI32, Label::kScratch);
    kernels::pad_values(exec, rows.topology, token_of_row(rows), index);
    kernels::gather_rows(exec, tokens, index, gathered);
    return gathered;
  }

  void enter(Exec& exec, const ExpertRows& rows, Pass pass, const Tensor& arranged,
             const Tensor& hidden) const override {
    kernels::sparse_from_dense(exec, rows.topology, arranged, packed_.entering(exec, pass), hidden);
  }
  void leave(Exec& exec, const ExpertRows& rows, Pass pass, const Tensor& hidden,
             const Tensor& out) const override {
    kernels::dense_from_sparse(exec, rows.topology, hidden, packed_.leaving(exec, pass), out);
  }
  void add_in_gradient(Exec& exec, const ExpertRows& rows, const Tensor& d_pre,
                       const Tensor& x) const override {
    kernels::add_from_sparse(exec, rows.topology, d_pre, x, packed_.weights().in.grad);
  }
  void add_down_gradient(Exec& exec, const ExpertRows& rows, const Tensor& dy,
                         const Tensor& h) const override {
    kernels::add_from_sparse(exec, rows.topology, dy, h, packed_.weights().down.grad);
  }

  Tensor spread(Exec& exec, const ExpertRows& rows, const Tensor& per_pair) const override {
    const Tensor out = exec.empty({rows.hidden});
    kernels::pad_values(exec, rows.topology, per_pair, out);
    return out;
  }
  Tensor collect(Exec& exec, const ExpertRows& rows, const Tensor& per_row) const override {
    const Tensor out = exec.empty({rows.pairs});
    kernels::unpad_values(exec, rows.topology, per_row, out);
    return out;
  }

 private:
  PackedExperts packed_;
  int64_t block_;
};

}  // namespace

std::unique_ptr<ExpertCompute> make_block_sparse_experts(const ExpertWeights& weights,
                                                         int64_t block) {
  return std::make_unique<BlockSparseExperts>(weights, block);
}

}  // namespace weft
