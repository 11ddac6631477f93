#pragma once

#include "kernels/scan/diagonal_scan.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/affine.h"

namespace weft {

// Per token, flat heads: q, k [tokens, heads * dk], v [tokens, heads * dv]; log_decay, phase f32
// [tokens, heads * dk].
struct ComplexDiagonalInputs {
  ConstView q, k, v, log_decay, phase;
};
struct ComplexDiagonalGradients {  // overwritten
  View q, k, v, log_decay, phase;
};
struct ComplexDiagonalKept {
  Tensor phase;        // summed up from each document's start
  Tensor q, k, decay;  // [tokens, heads * 2 dk]
  Tensor leaving;      // [documents, heads, 2 dk, dv], in the frame of the last token
  Tensor chunks;       // states between them; if undefined, backward recomputes them
};

// A complex decay per key channel and token (vectors are rows):
//   M_t = diag(e^{g_t + i p_t}) M_{t-1} + k_t^T v_t,    o_t = scale * Re(q_t M_t)
// Seen from a frame that turns with the running phase f_t = p_1 + ... + p_t, M_t e^{-i f_t} decays
// by e^{g_t} alone: a scan with real decays over twice the channels, whose queries and keys are [q
// cos f | q sin f] and [k cos f | k sin f], and whose state is the real part and minus the
// imaginary part there.
// State: M in the fixed frame [documents, heads, 2, dk, dv], real parts before imaginary ones.
class ComplexDiagonalRecurrence final
    : public AffineRecurrence<ComplexDiagonalInputs, ComplexDiagonalGradients,
                              ComplexDiagonalKept> {
 public:
  struct Options {
    HeadOptions heads;  // as many kv heads as heads
    float scale = 1.0f;
  };

  explicit ComplexDiagonalRecurrence(const Options& options);

  Tensor run(Exec& exec, const ComplexDiagonalInputs& in, const Sequence& sequence,
             const State& entering, State* leaving, ComplexDiagonalKept& keep) const override;
  void run_backward(Exec& exec, const ComplexDiagonalInputs& in, const Sequence& sequence,
                    const ComplexDiagonalKept& keep, const State& entering, const Cotangents& d,
                    const ComplexDiagonalGradients& gradients) const override;
  Summary summarize(Exec& exec, const ComplexDiagonalInputs& in,
                    const Sequence& sequence) const override;

  std::string_view program() const override { return "diagonal_scan"; }
  double flops_per_token() const override;

 protected:
  ComplexDiagonalGradients scratch_gradients(Exec& exec, const ComplexDiagonalInputs& in,
                                             std::vector<Tensor>& hold) const override;

 private:
  // All that is kept but the queries, which get their place.
  void turn_keys(Exec& exec, const ComplexDiagonalInputs& in, const Sequence& sequence,
                 ComplexDiagonalKept& keep) const;
  // e^{logs + i f} after each document's last token, [documents, heads, 2, dk]; no logs: e^{i f}.
  Tensor last_turns(Exec& exec, const Sequence& sequence, const Tensor& phase,
                    ConstView logs) const;
  kernels::DiagonalScan scan(const ComplexDiagonalInputs& in, const ComplexDiagonalKept& keep,
                             const Sequence& sequence) const;

  Options options_;
};

}  // namespace weft
