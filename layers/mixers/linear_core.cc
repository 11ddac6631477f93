#include "layers/mixers/linear_core.h"

#include "kernels/rows/l2_norm.h"

namespace weft {
namespace {

class UnitLengthCore final : public LinearCore {
 public:
  UnitLengthCore(const UnitLength& options, std::unique_ptr<LinearCore> core)
      : options_(options), core_(std::move(core)) {}

  Tensor forward(Exec& exec, const CoreInputs& in, const Sequence& sequence, State* state,
                 SavedStack& saved, const OverlapWork& overlapped) const override {
    Saved f;
    CoreInputs unit = in;
    if (in.q.dtype != options_.rows) {
      unit.q = f.q = exec.empty(in.q.shape, options_.rows);
      unit.k = f.k = exec.empty(in.k.shape, options_.rows);
    }
    f.k_inv_norm = to_unit(exec, in.k, unit.k);
    Tensor out = core_->forward(exec, unit, sequence, state, saved, [&] {
      overlapped();
      f.q_inv_norm = to_unit(exec, in.q, unit.q);
    });
    saved.push(std::move(f));
    return out;
  }

  void backward(Exec& exec, const CoreInputs& in, const Sequence& sequence, const Tensor& d_out,
                State* d_state, const CoreGradients& gradients, SavedStack& saved,
                const OverlapWork& overlapped) const override {
    const Saved f = saved.pop<Saved>();
    CoreInputs unit = in;
    if (f.q.defined()) unit.q = f.q, unit.k = f.k;
    CoreGradients d = gradients;
    Tensor dq, dk;
    if (d.q.dtype != options_.gradients) {
      d.q = dq = exec.empty(in.q.shape, options_.gradients);
      d.k = dk = exec.empty(in.k.shape, options_.gradients);
    }
    core_->backward(exec, unit, sequence, d_out, d_state, d, saved, overlapped);
    kernels::l2_norm_backward(exec, norm(), d.q, unit.q, f.q_inv_norm, gradients.q);
    kernels::l2_norm_backward(exec, norm(), d.k, unit.k, f.k_inv_norm, gradients.k);
  }
  double flops_per_token() const override { return core_->flops_per_token(); }

 private:
  struct Saved {
    Tensor q, k;                    // of unit length; undefined where they are in place
    Tensor q_inv_norm, k_inv_norm;  // [tokens, heads]
  };
  kernels::L2Norm norm() const { return {.heads = options_.heads}; }
  Tensor to_unit(Exec& exec, ConstView x, View y) const {
    const Tensor inv_norm = exec.empty({x.rows(), options_.heads});
    kernels::l2_norm_forward(exec, norm(), x, y, inv_norm);
    return inv_norm;
  }

  UnitLength options_;
  std::unique_ptr<LinearCore> core_;
};

}  // namespace

CoreMaker with_unit_length(const UnitLength& options, CoreMaker core) {
  return [options, core](const Build& build) {
    return std::make_unique<UnitLengthCore>(options, core(build));
  };
}

}  // namespace weft
