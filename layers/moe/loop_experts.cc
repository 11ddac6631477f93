#include "kernels/rows/gather.h"
#include "layers/moe/expert_compute.h"

namespace weft {
namespace {

using kernels::Transpose;
using kernels::Write;

class LoopExperts final : public ExpertCompute {
 public:
  LoopExperts(const ExpertWeights& weights, PlainGemm gemm)
      : weights_(weights), gemm_(std::move(gemm)) {}

  Tensor arrange(Exec& exec, const ExpertRows& rows, const Tensor& tokens) const override {
    const Tensor gathered = exec.empty({rows.pairs, tokens.shape().back()}, tokens.dtype());
    kernels::gather_rows(exec, tokens, token_of_row(rows), gathered);
    return gathered;
  }

  void enter(Exec& exec, const ExpertRows& rows, Pass pass, const Tensor& arranged,
             const Tensor& hidden) const override {
    const bool forward = pass == Pass::kForward;
    multiply(exec, rows, arranged, forward ? weights_.in : weights_.down,
             forward ? Transpose::kYes : Transpose::kNo, hidden);
  }
  void leave(Exec& exec, const ExpertRows& rows, Pass pass, const Tensor& hidden,
             const Tensor& out) const override {
    const bool forward = pass == Pass::kForward;
    multiply(exec, rows, hidden, forward ? weights_.down : weights_.in,
             forward ? Transpose::kYes : Transpose::kNo, out);
  }
  void add_in_gradient(Exec& exec, const ExpertRows& rows, const Tensor& d_pre,
                       const Tensor& x) const override {
    add_gradient(exec, rows, d_pre, x, weights_.in);
  }
  void add_down_gradient(Exec& exec, const ExpertRows& rows, const Tensor& dy,
                         const Tensor& h) const override {
    add_gradient(exec, rows, dy, h, weights_.down);
  }

 private:
  // body(expert, its first row, its rows), for experts that have rows
  template <class Body>
  static void each_expert(const ExpertRows& rows, Body body) {
    const auto& offsets = rows.order.offsets;
    for (size_t e = 0; e + 1 < offsets.size(); ++e) {
      const int64_t first = offsets[e], count = offsets[e + 1] - first;
      if (count > 0) body(static_cast<int64_t>(e), first, count);
    }
  }

  void multiply(Exec& exec, const ExpertRows& rows, const Tensor& a, const Parameter& weight,
                Transpose transpose, const Tensor& c) const {
    each_expert(rows, [&](int64_t e, int64_t first, int64_t count) {
      gemm_(exec, a.row_range(first, count), weight.value.row(e), c.row_range(first, count),
            {.b = transpose});
    });
  }
  void add_gradient(Exec& exec, const ExpertRows& rows, const Tensor& a, const Tensor& b,
                    const Parameter& weight) const {
    each_expert(rows, [&](int64_t e, int64_t first, int64_t count) {
      gemm_(exec, a.row_range(first, count), b.row_range(first, count), weight.grad.row(e),
            {.a = Transpose::kYes, .write = Write::kAccumulate});
    });
  }

  ExpertWeights weights_;
  PlainGemm gemm_;
};

}  // namespace

std::unique_ptr<ExpertCompute> make_loop_experts(const ExpertWeights& weights, PlainGemm gemm) {
  if (!gemm) {
    gemm = [](Exec& exec, ConstView a, ConstView b, View c, kernels::GemmOptions options) {
      kernels::gemm(exec, a, b, c, options);
    };
  }
  return std::make_unique<LoopExperts>(weights, std::move(gemm));
}

}  // namespace weft
