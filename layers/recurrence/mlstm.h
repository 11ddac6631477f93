#pragma once

#include "kernels/gates/mlstm.h"
#include "kernels/scan/scalar_scan.h"
#include "kernels/states/mlstm.h"
#include "layers/recurrence/affine.h"

namespace weft {

// Per token, flat heads: q, k [tokens, heads * dk], v [tokens, heads * dv]; i, f f32 [tokens,
// heads], before their exponential and logsigmoid.
struct MlstmInputs {
  ConstView q, k, v, i, f;
};
struct MlstmGradients {  // overwritten; i and f f32
  View q, k, v, i, f;
};
struct MlstmKept {
  Tensor keys;                // e^{i - r} k
  Tensor values;              // (v | 1)
  Tensor wide;                // (numerator | denominator) of every token, f32
  Tensor log_decay, rest, m;  // [tokens, heads]
  // e^{-r} (C | n) behind the last tokens; undefined where no gradient of it can come
  Tensor after;
  Tensor chunks;  // states between them; if undefined, backward recomputes them
};

// mLSTM without its weights (kernels/gates/mlstm.h says how it becomes a scan with scalar decay):
//   m_t = max(l_t + m_{t-1}, i_t),   l = logsigmoid(f)
//   C_t = e^{l_t + m_{t-1} - m_t} C_{t-1} + e^{i_t - m_t} k_t^T v_t,   n_t likewise
//   h_t = scale q_t C_t / (max(|scale q_t . n_t|, e^{-m_t}) + 1e-6)
// h is f32: the norm behind it must see the numbers whose scale the gradients of i and f cancel.
// State: C [documents, heads, dk, dv], n [documents, heads, dk], m [documents, heads], all zero at
// the start.
//
// A span is not affine in this state, because m is a maximum, but its summary has a fixed size:
// transition: the sum of l, [n, heads]; update: the state it leaves when nothing enters (m minus
// infinity).
class MlstmRecurrence final : public Recurrence<MlstmInputs, MlstmGradients, MlstmKept> {
 public:
  struct Options {
    int64_t heads = 0, dk = 0, dv = 0;
    float scale = 1.0f;
  };
  explicit MlstmRecurrence(const Options& options) : o_(options) {}

  State start(Exec& exec, int64_t sequences) const override;
  Summary combine(Exec& exec, const Summary& first, const Summary& second) const override;
  State apply(Exec& exec, const Summary& span, const State& entering) const override;
  State apply_adjoint(Exec& exec, const Summary& span, const State& entering,
                      const State& d_leaving) const override;

  Tensor run(Exec& exec, const MlstmInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, MlstmKept& keep) const override;
  void run_backward(Exec& exec, const MlstmInputs& in, const Sequence& sequence,
                    const MlstmKept& keep, const State& entering, const Cotangents& d,
                    const MlstmGradients& gradients) const override;
  Summary summarize(Exec& exec, const MlstmInputs& in, const Sequence& sequence) const override;
  State state_gradient(Exec& exec, const MlstmInputs& in, const Sequence& sequence,
                       const MlstmKept& keep, const State& entering,
                       ConstView d_out) const override;

  std::string_view program() const override { return "scalar_scan"; }
  double flops_per_token() const override;

 private:
  kernels::ScalarScan scan(const MlstmInputs& in, const MlstmKept& keep,
                           const Sequence& sequence) const;
  void prepare(Exec& exec, const MlstmInputs& in, const Sequence& sequence, ConstView entering_m,
               MlstmKept& keep) const;
  State room(Exec& exec, int64_t sequences) const;  // without numbers
  // The row of every document's last token; of `entering` (not given: zero) where there is none.
  Tensor last(Exec& exec, const Sequence& sequence, const Tensor& rows, ConstView entering) const;
  Tensor plain(Exec& exec, const State& state) const;  // (C | n) e^m; undefined for none
  // e^{r - m} (C | n) taken apart, with m.
  State stabilised(Exec& exec, const Tensor& wide, const Tensor& rest, const Tensor& m) const;
  struct LeavingGradient {
    Tensor after, rest, m;
  };
  LeavingGradient leaving_gradient(Exec& exec, const MlstmKept& keep, const Sequence& sequence,
                                   ConstView entering_m, const State& d_leaving) const;
  // `dm`, the gradient that the gates have for the entering m, becomes that of the state.
  State entering_gradient(Exec& exec, const State& entering, const Tensor& before,
                          const Tensor& d_before, const Tensor& dm) const;

  Options o_;
};

}  // namespace weft
