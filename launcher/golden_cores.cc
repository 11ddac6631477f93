#include "launcher/golden_cores.h"

#include <cmath>

#include "layers/recurrence/diagonal.h"

namespace weft {
namespace {

// `query` is the file's name of q: "r" where there is a bonus w.u, and no scale then.
void run_diagonal_core(Exec& exec, const GoldenCase& golden, Comparison& compare,
                       const std::string& query) {
  const std::string q_key = "in." + query;
  const Shape &q = golden.shape(q_key), &v = golden.shape("in.v"), &k = golden.shape("in.k");
  const bool has_bonus = golden.has("w.u");
  const DiagonalRecurrence recurrence(
      {.heads = {.heads = q[2], .kv_heads = k[2], .dk = q[3], .dv = v[3]},
       .scale = has_bonus ? 1.0f : 1.0f / std::sqrt(static_cast<float>(q[3]))});
  const Tensor tq = golden.rows(exec, q_key), tk = golden.rows(exec, "in.k"),
               tv = golden.rows(exec, "in.v");
  const Tensor decay = golden.read(exec, "in.g", DType::kF32).reshaped(tk.shape());
  const Tensor dq = exec.empty(tq.shape()), dk = exec.empty(tk.shape()),
               dv = exec.empty(tv.shape()), d_decay = exec.empty(decay.shape());
  DiagonalRecurrence::Inputs in{tq, tk, tv, decay};
  DiagonalRecurrence::Gradients gradients{dq, dk, dv, d_decay};
  Tensor bonus, d_bonus;
  if (has_bonus) {
    bonus = golden.read(exec, "w.u", DType::kF32).reshaped({q[2] * q[3]});
    d_bonus = exec.zeros(bonus.shape());
    in.bonus = bonus, gradients.bonus = d_bonus;
  }

  const Sequence sequence = golden.sequence(exec, q_key);
  SavedStack saved;
  State state = golden.states(exec, "state0.");
  compare.check(exec, "out.y", recurrence.forward(exec, in, sequence, &state, saved));
  compare.check_states(exec, "out.state.", state);
  State d_state = golden.states(exec, "cot.state.");
  recurrence.backward(exec, in, sequence, golden.rows(exec, "cot.y"), &d_state, gradients, saved);
  compare.check(exec, "grad." + q_key, dq);
  compare.check(exec, "grad.in.k", dk);
  compare.check(exec, "grad.in.v", dv);
  compare.check(exec, "grad.in.g", d_decay);
  if (has_bonus) compare.check(exec, "grad.w.u", d_bonus);
  compare.check_states(exec, "grad.state0.", d_state);
}

}  // namespace

bool run_golden_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  if (golden.kind != "core") return false;
  if (golden.mixer == "diag_decay")
    run_diagonal_core(exec, golden, compare, "q");
  else if (golden.mixer == "rwkv6")
    run_diagonal_core(exec, golden, compare, "r");
  else
    return false;
  return true;
}

}  // namespace weft
