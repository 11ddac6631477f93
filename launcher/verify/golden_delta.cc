#include "launcher/verify/golden_delta.h"

#include <cmath>

#include "layers/recurrence/delta.h"

namespace weft {

bool is_delta_core(const GoldenCase& golden) {
  return golden.kind == "core" && (golden.mixer == "deltanet" || golden.mixer == "gated_deltanet");
}

void run_delta_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Shape &q = golden.shape("in.q"), &v = golden.shape("in.v");
  const DeltaRecurrence recurrence({.heads = v[2],
                                    .qk_heads = q[2],
                                    .dk = q[3],
                                    .dv = v[3],
                                    .scale = 1.0f / std::sqrt(static_cast<float>(q[3]))});
  const Sequence sequence = golden.sequence(exec, "in.q");
  const Shape gates{sequence.tokens(), v[2]};
  const Tensor tq = golden.rows(exec, "in.q"), tk = golden.rows(exec, "in.k"),
               tv = golden.rows(exec, "in.v");
  const Tensor beta = golden.read(exec, "in.beta", DType::kF32).reshaped(gates);
  DeltaRecurrence::Inputs in{tq, tk, tv, beta, {}};
  Tensor decay, d_decay;
  if (golden.has("in.g")) {
    decay = golden.read(exec, "in.g", DType::kF32).reshaped(gates);
    d_decay = exec.empty(gates);
    in.log_decay = decay;
  }
  SavedStack saved;
  State state = golden.states(exec, "state0.");
  compare.check(exec, "out.y", recurrence.forward(exec, in, sequence, &state, saved));
  compare.check_states(exec, "out.state.", state);

  State d_state = golden.states(exec, "cot.state.");
  const Tensor dq = exec.empty(tq.shape()), dk = exec.empty(tk.shape()),
               dv = exec.empty(tv.shape()), d_beta = exec.empty(gates);
  recurrence.backward(exec, in, sequence, golden.rows(exec, "cot.y"), &d_state,
                      {dq, dk, dv, d_beta, d_decay.defined() ? d_decay.view() : View{}}, saved);
  compare.check(exec, "grad.in.q", dq);
  compare.check(exec, "grad.in.k", dk);
  compare.check(exec, "grad.in.v", dv);
  compare.check(exec, "grad.in.beta", d_beta);
  if (d_decay.defined()) compare.check(exec, "grad.in.g", d_decay);
  compare.check_states(exec, "grad.state0.", d_state);
}

}  // namespace weft
