#include "launcher/verify/golden_rank_one.h"

#include <cmath>

#include "layers/recurrence/rank_one.h"

namespace weft {

bool is_rank_one_core(const GoldenCase& golden) {
  return golden.kind == "core" && (golden.mixer == "rwkv7" || golden.mixer == "kda");
}

void run_rank_one_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const bool general = golden.has("in.alpha");  // rwkv7: reads by r, without a scale
  const std::string q_key = general ? "in.r" : "in.q";
  const Shape &q = golden.shape(q_key), &v = golden.shape("in.v");
  const RankOneRecurrence recurrence(
      {.heads = q[2],
       .dk = q[3],
       .dv = v[3],
       .scale = general ? 1.0f : 1.0f / std::sqrt(static_cast<float>(q[3]))});
  const Sequence sequence = golden.sequence(exec, q_key);
  const Tensor tq = golden.rows(exec, q_key), tk = golden.rows(exec, "in.k"),
               tv = golden.rows(exec, "in.v"), alpha = golden.rows(exec, "in.alpha");
  const Tensor decay = golden.read(exec, "in.g", DType::kF32).reshaped(tk.shape());
  const Tensor beta =
      general ? golden.rows(exec, "in.beta")
              : golden.read(exec, "in.beta", DType::kF32).reshaped({sequence.tokens(), q[2]});
  const RankOneInputs in{tq, tk, tv, decay, given(alpha), beta};
  SavedStack saved;
  State state = golden.states(exec, "state0.");
  compare.check(exec, "out.y", recurrence.forward(exec, in, sequence, &state, saved));
  compare.check_states(exec, "out.state.", state);

  State d_state = golden.states(exec, "cot.state.");
  const Tensor dq = exec.empty(tq.shape()), dk = exec.empty(tk.shape()),
               dv = exec.empty(tv.shape()), d_decay = exec.empty(decay.shape()),
               d_beta = exec.empty(beta.shape());
  const Tensor d_alpha = general ? exec.empty(alpha.shape()) : Tensor();
  recurrence.backward(exec, in, sequence, golden.rows(exec, "cot.y"), &d_state,
                      {dq, dk, dv, d_decay, wanted(d_alpha), d_beta}, saved);
  compare.check(exec, "grad." + q_key, dq);
  compare.check(exec, "grad.in.k", dk);
  compare.check(exec, "grad.in.v", dv);
  compare.check(exec, "grad.in.g", d_decay);
  compare.check(exec, "grad.in.beta", d_beta);
  if (general) compare.check(exec, "grad.in.alpha", d_alpha);
  compare.check_states(exec, "grad.state0.", d_state);
}

}  // namespace weft
