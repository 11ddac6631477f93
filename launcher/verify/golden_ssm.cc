#include "launcher/verify/golden_ssm.h"

#include <cmath>

#include "kernels/gates/ssm.h"
#include "kernels/rows/rebased.h"
#include "layers/basic/cast.h"
#include "layers/recurrence/mlstm.h"
#include "layers/recurrence/scalar.h"
#include "layers/recurrence/selective.h"

namespace weft {
namespace {

// An input or weight of the case and its gradient; weights start from zero, since gradients add up.
struct Known {
  Known(Exec& exec, const GoldenCase& golden, std::string name) : key(std::move(name)) {
    const bool input = key.starts_with("in.");
    value = input ? golden.rows(exec, key) : golden.read(exec, key, DType::kF32);
    grad = exec.zeros(value.shape());
  }
  // Gates of [tokens, heads], which are f32 in every precision.
  static Known gate(Exec& exec, const GoldenCase& golden, const std::string& key) {
    Known known(exec, golden, key);
    known.value = golden.read(exec, key, DType::kF32).reshaped(known.value.shape());
    return known;
  }
  std::string key;
  Tensor value, grad;
};

void check_gradients(Exec& exec, Comparison& compare, std::initializer_list<const Known*> all) {
  for (const Known* known : all) compare.check(exec, "grad." + known->key, known->grad);
}

// Forward and backward of a recurrence whose output is the case's.
template <class R>
void run_recurrence(Exec& exec, const GoldenCase& golden, Comparison& compare, const R& recurrence,
                    const typename R::Inputs& in, const Sequence& sequence,
                    const typename R::Gradients& gradients) {
  SavedStack saved;
  State state = golden.states(exec, "state0.");
  compare.check(exec, "out.y", recurrence.forward(exec, in, sequence, &state, saved));
  compare.check_states(exec, "out.state.", state);
  State d_state = golden.states(exec, "cot.state.");
  recurrence.backward(exec, in, sequence, golden.rows(exec, "cot.y"), &d_state, gradients, saved);
  compare.check_states(exec, "grad.state0.", d_state);
}

void run_mamba(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Known x(exec, golden, "in.x"), dt = Known::gate(exec, golden, "in.dt"),
                                       b(exec, golden, "in.b"), c(exec, golden, "in.c"),
                                       a_log(exec, golden, "w.a_log"), d(exec, golden, "w.d");
  const SelectiveRecurrence recurrence({a_log.value.shape()[0], a_log.value.shape()[1]});
  run_recurrence(exec, golden, compare, recurrence,
                 {x.value, dt.value, b.value, c.value, a_log.value, d.value},
                 golden.sequence(exec, "in.x"),
                 {x.grad, dt.grad, b.grad, c.grad, a_log.grad, d.grad});
  check_gradients(exec, compare, {&x, &dt, &b, &c, &a_log, &d});
}

void run_s4(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Known u(exec, golden, "in.u"), log_dt(exec, golden, "w.log_dt"),
      a_log(exec, golden, "w.a_log"), b(exec, golden, "w.b"), c(exec, golden, "w.c"),
      d(exec, golden, "w.d");
  const StaticRecurrence recurrence({a_log.value.shape()[0], a_log.value.shape()[1]});
  run_recurrence(exec, golden, compare, recurrence,
                 {u.value, log_dt.value, a_log.value, b.value, c.value, d.value},
                 golden.sequence(exec, "in.u"),
                 {u.grad, log_dt.grad, a_log.grad, b.grad, c.grad, d.grad});
  check_gradients(exec, compare, {&u, &log_dt, &a_log, &b, &c, &d});
}

void run_mlstm(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Known q(exec, golden, "in.q"), k(exec, golden, "in.k"), v(exec, golden, "in.v"),
      i = Known::gate(exec, golden, "in.i"), f = Known::gate(exec, golden, "in.f");
  const Shape &key = golden.shape("in.q"), &value = golden.shape("in.v");
  const MlstmRecurrence recurrence(
      {key[2], key[3], value[3], 1.0f / std::sqrt(static_cast<float>(key[3]))});
  run_recurrence(exec, golden, compare, recurrence, {q.value, k.value, v.value, i.value, f.value},
                 golden.sequence(exec, "in.q"), {q.grad, k.grad, v.grad, i.grad, f.grad});
  check_gradients(exec, compare, {&q, &k, &v, &i, &f});
}

void run_mamba2(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Known x(exec, golden, "in.x"), dt = Known::gate(exec, golden, "in.dt"),
                                       b(exec, golden, "in.b"), c(exec, golden, "in.c"),
                                       a_log(exec, golden, "w.a_log"), d(exec, golden, "w.d");
  const Shape &shape = golden.shape("in.x"), &shared = golden.shape("in.b");
  const ScalarRecurrence recurrence(
      {.heads = {shape[2], shape[2], shared[3], shape[3]}, .qk_heads = shared[2]});
  const kernels::HeadSteps steps{x.value, dt.value, a_log.value, d.value};
  const Tensor v = exec.empty(x.value.shape(), golden.precision), g = exec.empty(dt.value.shape());
  kernels::head_steps_forward(exec, steps, v, g);
  const ScalarInputs in{c.value, b.value, v, g};
  const Sequence sequence = golden.sequence(exec, "in.x");
  SavedStack saved;
  State state = golden.states(exec, "state0.");
  const Tensor y = recurrence.forward(exec, in, sequence, &state, saved);
  kernels::add_head_skip(exec, steps, y);
  compare.check(exec, "out.y", y);
  compare.check_states(exec, "out.state.", state);

  State d_state = golden.states(exec, "cot.state.");
  const Tensor dy = golden.rows(exec, "cot.y"), dv = exec.empty(v.shape()),
               dg = exec.empty(g.shape());
  recurrence.backward(exec, in, sequence, dy, &d_state, {c.grad, b.grad, dv, dg}, saved);
  kernels::head_steps_backward(exec, steps, {dv, dg, dy, x.grad, dt.grad, a_log.grad, d.grad});
  compare.check_states(exec, "grad.state0.", d_state);
  check_gradients(exec, compare, {&x, &dt, &b, &c, &a_log, &d});
}

void run_rebased(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Known q(exec, golden, "in.q"), k(exec, golden, "in.k"), v(exec, golden, "in.v"),
      gamma(exec, golden, "w.gamma"), beta(exec, golden, "w.beta");
  const Shape &key = golden.shape("in.q"), &value = golden.shape("in.v");
  const int64_t width = kernels::rebased_width(key[3]);
  const ScalarRecurrence recurrence(
      {.heads = {key[2], key[2], width, value[3]}, .normalize = true, .epsilon = 1e-5f});
  const kernels::RebasedFeatures map{key[2]};
  const Tensor fq = exec.empty({q.value.shape()[0], key[2] * width}), fk = exec.empty(fq.shape()),
               fv = in_type(exec, v.value, DType::kF32);
  kernels::rebased_features_forward(exec, map, q.value, gamma.value, beta.value, fq);
  kernels::rebased_features_forward(exec, map, k.value, gamma.value, beta.value, fk);
  const Tensor dq = exec.empty(fq.shape()), dk = exec.empty(fk.shape());
  run_recurrence(exec, golden, compare, recurrence, {fq, fk, fv, {}}, golden.sequence(exec, "in.q"),
                 {dq, dk, v.grad, {}});
  kernels::rebased_features_backward(
      exec, map, {q.value, gamma.value, beta.value, dq, q.grad, gamma.grad, beta.grad});
  kernels::rebased_features_backward(
      exec, map, {k.value, gamma.value, beta.value, dk, k.grad, gamma.grad, beta.grad});
  check_gradients(exec, compare, {&q, &k, &v, &gamma, &beta});
}

}  // namespace

bool run_ssm_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  if (golden.kind != "core") return false;
  if (golden.mixer == "mamba")
    run_mamba(exec, golden, compare);
  else if (golden.mixer == "s4")
    run_s4(exec, golden, compare);
  else if (golden.mixer == "mlstm")
    run_mlstm(exec, golden, compare);
  else if (golden.mixer == "mamba2")
    run_mamba2(exec, golden, compare);
  else if (golden.mixer == "rebased")
    run_rebased(exec, golden, compare);
  else
    return false;
  return true;
}

}  // namespace weft
