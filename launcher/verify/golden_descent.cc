#include "launcher/verify/golden_descent.h"

#include <cmath>

#include "layers/recurrence/momentum.h"
#include "layers/recurrence/norm_descent.h"

namespace weft {

bool is_descent_core(const GoldenCase& golden) {
  return golden.kind == "core" &&
         (golden.mixer.starts_with("ttt") || golden.mixer.starts_with("titans"));
}

namespace {

void run_norm_descent_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Shape& q = golden.shape("in.q");
  const NormDescentRecurrence recurrence(
      {.heads = q[2], .width = q[3], .mini_batch = golden.config.value("mini_batch", int64_t{1})});
  const Sequence sequence = golden.sequence(exec, "in.q");
  const Tensor tq = golden.rows(exec, "in.q"), tk = golden.rows(exec, "in.k"),
               tv = golden.rows(exec, "in.v");
  const Tensor eta = golden.read(exec, "in.eta", DType::kF32).reshaped({sequence.tokens(), q[2]});
  const Tensor w = golden.read(exec, "w.ln_w", DType::kF32),
               c = golden.read(exec, "w.ln_b", DType::kF32);
  const Tensor dq = exec.empty(tq.shape()), dk = exec.empty(tq.shape()),
               dv = exec.empty(tq.shape()), d_eta = exec.empty(eta.shape()),
               dw = exec.zeros(w.shape()), dc = exec.zeros(w.shape());
  const NormDescentInputs in{tq, tk, tv, eta, w, c};
  SavedStack saved;
  State state = golden.states(exec, "state0.");
  compare.check(exec, "out.y", recurrence.forward(exec, in, sequence, &state, saved));
  compare.check_states(exec, "out.state.", state);
  State d_state = golden.states(exec, "cot.state.");
  recurrence.backward(exec, in, sequence, golden.rows(exec, "cot.y"), &d_state,
                      {dq, dk, dv, d_eta, dw, dc}, saved);
  compare.check(exec, "grad.in.q", dq);
  compare.check(exec, "grad.in.k", dk);
  compare.check(exec, "grad.in.v", dv);
  compare.check(exec, "grad.in.eta", d_eta);
  compare.check(exec, "grad.w.ln_w", dw);
  compare.check(exec, "grad.w.ln_b", dc);
  compare.check_states(exec, "grad.state0.", d_state);
}

}  // namespace

void run_descent_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  if (golden.mixer == "ttt_ln") return run_norm_descent_core(exec, golden, compare);
  const Shape &q = golden.shape("in.q"), &v = golden.shape("in.v");
  const bool momentum = golden.has("in.theta");
  const MomentumRecurrence recurrence({.heads = q[2],
                                       .dk = q[3],
                                       .dv = v[3],
                                       .scale = 1.0f / std::sqrt(static_cast<float>(q[3])),
                                       .mini_batch = golden.config.value("mini_batch", int64_t{1}),
                                       .momentum = momentum});
  const Sequence sequence = golden.sequence(exec, "in.q");
  const Shape gates{sequence.tokens(), q[2]};
  const Tensor tq = golden.rows(exec, "in.q"), tk = golden.rows(exec, "in.k"),
               tv = golden.rows(exec, "in.v");
  // The only rate of "ttt" is called eta.
  const std::vector<std::string> names = momentum
                                             ? std::vector<std::string>{"theta", "alpha", "eta"}
                                             : std::vector<std::string>{"eta"};
  std::vector<Tensor> gate, d_gate;
  for (const std::string& name : names) {
    gate.push_back(golden.read(exec, "in." + name, DType::kF32).reshaped(gates));
    d_gate.push_back(exec.empty(gates));
  }
  MomentumInputs in{tq, tk, tv, gate[0]};
  const Tensor dq = exec.empty(tq.shape()), dk = exec.empty(tk.shape()),
               dv = exec.empty(tv.shape());
  MomentumGradients d{dq, dk, dv, d_gate[0]};
  if (momentum) {
    in.alpha = gate[1], in.eta = gate[2];
    d.d_alpha = d_gate[1], d.d_eta = d_gate[2];
  }
  SavedStack saved;
  State state = golden.states(exec, "state0.");
  compare.check(exec, "out.y", recurrence.forward(exec, in, sequence, &state, saved));
  compare.check_states(exec, "out.state.", state);
  State d_state = golden.states(exec, "cot.state.");
  recurrence.backward(exec, in, sequence, golden.rows(exec, "cot.y"), &d_state, d, saved);
  compare.check(exec, "grad.in.q", dq);
  compare.check(exec, "grad.in.k", dk);
  compare.check(exec, "grad.in.v", dv);
  for (size_t i = 0; i < names.size(); ++i) compare.check(exec, "grad.in." + names[i], d_gate[i]);
  compare.check_states(exec, "grad.state0.", d_state);
}

}  // namespace weft
