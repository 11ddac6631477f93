#include "launcher/verify/golden_cores.h"

#include <algorithm>
#include <cmath>

#include "kernels/gates/lower_bounds.h"
#include "layers/recurrence/complex_diagonal.h"
#include "layers/recurrence/diagonal.h"
#include "layers/recurrence/slots.h"
#include "layers/recurrence/two_sided.h"

namespace weft {
namespace {

// The inputs in.<name> of a core in the case's precision, or f32 for gates, and their gradients.
class CoreInputs {
 public:
  CoreInputs(Exec& exec, const GoldenCase& golden) : exec_(exec), golden_(golden) {}

  ConstView activation(const char* name) { return add(name, golden_.rows(exec_, key(name))); }
  ConstView gate(const char* name) {
    const Tensor stored = golden_.read(exec_, key(name), DType::kF32);
    const Shape& s = stored.shape();
    return add(name, stored.reshaped({s[0] * s[1], s[2] * s[3]}));
  }
  View gradient(const char* name) const {
    const auto found = std::find_if(inputs_.begin(), inputs_.end(),
                                    [&](const Input& input) { return input.name == name; });
    WEFT_CHECK(found != inputs_.end(), "no input {}", name);
    return found->gradient;
  }
  void check(Comparison& compare) const {
    for (const Input& input : inputs_)
      compare.check(exec_, "grad." + key(input.name), input.gradient);
  }

 private:
  struct Input {
    std::string name;
    Tensor value, gradient;
  };
  static std::string key(const std::string& name) { return "in." + name; }
  ConstView add(const char* name, const Tensor& value) {
    inputs_.push_back({name, value, exec_.empty(value.shape())});
    return value;
  }

  Exec& exec_;
  const GoldenCase& golden_;
  std::vector<Input> inputs_;
};

HeadOptions heads_of(const GoldenCase& golden, const std::string& query) {
  const Shape &q = golden.shape("in." + query), &k = golden.shape("in.k"),
              &v = golden.shape("in.v");
  return {.heads = q[2], .kv_heads = k[2], .dk = q[3], .dv = v[3]};
}
float default_scale(const HeadOptions& h) { return 1.0f / std::sqrt(static_cast<float>(h.dk)); }

// Runs forward and backward with states and compares; the caller compares gradients of inputs.
template <class Recurrence>
void run_core(Exec& exec, const GoldenCase& golden, Comparison& compare,
              const Recurrence& recurrence, const typename Recurrence::Inputs& in,
              const typename Recurrence::Gradients& gradients) {
  const Sequence sequence = golden.sequence(exec, "in.k");
  SavedStack saved;
  State state = golden.states(exec, "state0.");
  compare.check(exec, "out.y", recurrence.forward(exec, in, sequence, &state, saved));
  compare.check_states(exec, "out.state.", state);
  State d_state = golden.states(exec, "cot.state.");
  recurrence.backward(exec, in, sequence, golden.rows(exec, "cot.y"), &d_state, gradients, saved);
  compare.check_states(exec, "grad.state0.", d_state);
}

// `query` is the file's name of q: "r" where there is a bonus w.u, and no scale then.
void run_diagonal_core(Exec& exec, const GoldenCase& golden, Comparison& compare,
                       const char* query) {
  const HeadOptions h = heads_of(golden, query);
  const bool has_bonus = golden.has("w.u");
  CoreInputs inputs(exec, golden);
  DiagonalRecurrence::Inputs in{inputs.activation(query), inputs.activation("k"),
                                inputs.activation("v"), inputs.gate("g")};
  DiagonalRecurrence::Gradients gradients{inputs.gradient(query), inputs.gradient("k"),
                                          inputs.gradient("v"), inputs.gradient("g")};
  Tensor bonus, d_bonus;
  if (has_bonus) {
    bonus = golden.read(exec, "w.u", DType::kF32).reshaped({h.heads * h.dk});
    d_bonus = exec.zeros(bonus.shape());
    in.bonus = bonus, gradients.d_bonus = d_bonus;
  }
  const DiagonalRecurrence recurrence({h, has_bonus ? 1.0f : default_scale(h)});
  run_core(exec, golden, compare, recurrence, in, gradients);
  inputs.check(compare);
  if (has_bonus) compare.check(exec, "grad.w.u", d_bonus);
}

// Recurrences of {q, k, v, gate, another gate}.
template <class Recurrence>
void run_two_gates(Exec& exec, const GoldenCase& golden, Comparison& compare, const char* first,
                   const char* second) {
  const HeadOptions h = heads_of(golden, "q");
  CoreInputs inputs(exec, golden);
  const typename Recurrence::Inputs in{inputs.activation("q"), inputs.activation("k"),
                                       inputs.activation("v"), inputs.gate(first),
                                       inputs.gate(second)};
  run_core(exec, golden, compare, Recurrence({h, default_scale(h)}), in,
           {inputs.gradient("q"), inputs.gradient("k"), inputs.gradient("v"),
            inputs.gradient(first), inputs.gradient(second)});
  inputs.check(compare);
}

void run_slots_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  CoreInputs inputs(exec, golden);
  const SlotsRecurrence::Inputs in{inputs.activation("q"), inputs.activation("k"),
                                   inputs.activation("v"), inputs.gate("g")};
  run_core(
      exec, golden, compare,
      SlotsRecurrence({heads_of(golden, "q"), golden.shape("in.g")[3], 1.0f}), in,
      {inputs.gradient("q"), inputs.gradient("k"), inputs.gradient("v"), inputs.gradient("g")});
  inputs.check(compare);
}

void run_lower_bounds(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Tensor raw = golden.read(exec, "w.lower_bounds", DType::kF32),
               cotangent = golden.read(exec, "cot.y", DType::kF32);
  const Tensor bounds = exec.empty(raw.shape()), d_raw = exec.zeros(raw.shape());
  for (int64_t layer = 0; layer < raw.shape()[0]; ++layer) {
    kernels::lower_bound_forward(exec, layer, raw, bounds.row(layer));
    kernels::lower_bound_backward(exec, layer, raw, cotangent.row(layer), d_raw);
  }
  compare.check(exec, "out.y", bounds);
  compare.check(exec, "grad.w.lower_bounds", d_raw);
}

}  // namespace

bool run_golden_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  if (golden.kind == "helper" && golden.mixer == "hgrn2") {
    run_lower_bounds(exec, golden, compare);
    return true;
  }
  if (golden.kind != "core") return false;
  if (golden.mixer == "diag_decay")
    run_diagonal_core(exec, golden, compare, "q");
  else if (golden.mixer == "rwkv6")
    run_diagonal_core(exec, golden, compare, "r");
  else if (golden.mixer == "gfw")
    run_two_gates<TwoSidedRecurrence>(exec, golden, compare, "ga", "gc");
  else if (golden.mixer == "gateloop")
    run_two_gates<ComplexDiagonalRecurrence>(exec, golden, compare, "g", "theta");
  else if (golden.mixer == "gsa")
    run_slots_core(exec, golden, compare);
  else
    return false;
  return true;
}

}  // namespace weft
