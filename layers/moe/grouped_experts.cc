#include "layers/moe/packed_experts.h"

namespace weft {
namespace {

class GroupedExperts final : public ExpertCompute {
 public:
  explicit GroupedExperts(const ExpertWeights& weights) : packed_(weights) {}

  Tensor arrange(Exec&, const ExpertRows&, const Tensor& tokens) const override { return tokens; }

  void enter(Exec& exec, const ExpertRows& rows, Pass pass, const Tensor& tokens,
             const Tensor& hidden) const override {
    kernels::grouped_gemm(exec, tokens, rows.order.offsets, packed_.entering(exec, pass), hidden,
                          kernels::Write::kReplace, token_of_row(rows));
  }
  void leave(Exec& exec, const ExpertRows& rows, Pass pass, const Tensor& hidden,
             const Tensor& out) const override {
    kernels::grouped_gemm(exec, hidden, rows.order.offsets, packed_.leaving(exec, pass), out);
  }
  void add_in_gradient(Exec& exec, const ExpertRows& rows, const Tensor& d_pre,
                       const Tensor& x) const override {
    kernels::grouped_gemm_weights(exec, d_pre, x, rows.order.offsets, packed_.weights().in.grad,
                                  {.gather_b = token_of_row(rows)});
  }
  void add_down_gradient(Exec& exec, const ExpertRows& rows, const Tensor& dy,
                         const Tensor& h) const override {
    kernels::grouped_gemm_weights(exec, dy, h, rows.order.offsets, packed_.weights().down.grad,
                                  {.gather_a = token_of_row(rows)});
  }

 private:
  PackedExperts packed_;
};

}  // namespace

std::unique_ptr<ExpertCompute> make_grouped_experts(const ExpertWeights& weights) {
  return std::make_unique<GroupedExperts>(weights);
}

}  // namespace weft
