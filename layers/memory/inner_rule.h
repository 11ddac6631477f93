#pragma once

#include <functional>
#include <memory>

#include "layers/context/mixer.h"
#include "layers/memory/memory_linear.h"

namespace weft {

// One row per (token, memory): q, k [rows, heads * dk], v [rows, heads * dv], in the compute type.
struct InnerInputs {
  const Tensor& x;  // [tokens, hidden], for gates
  const MemoryRows& rows;
  View q, k, v;  // a rule may change them in place (to unit length)
};
struct InnerGradients {
  View q, k, v;  // overwritten
  View x;        // f32 [space.count(rows), hidden], added to
};

// How a memory is written and read: the gates of a recurrence, and the recurrence.
class InnerRule {
 public:
  virtual ~InnerRule() = default;
  // [rows, heads * dv] in the compute type. `queries` puts numbers into in.q: done while states
  // travel between sequence ranks.
  using Queries = std::function<void()>;
  virtual Tensor forward(Exec& exec, const InnerInputs& in, State* state, SavedStack& saved,
                         const Queries& queries) const = 0;
  // `in` holds q, k, v as forward left them; d_out f32.
  virtual void backward(Exec& exec, const InnerInputs& in, ConstView d_out, State* d_state,
                        const InnerGradients& gradients, SavedStack& saved) const = 0;
  virtual double flops_per_row() const = 0;          // of the recurrence
  virtual double gate_flops() const { return 0.0; }  // of the gates' projections, per row of them
  // What k_proj gives is not a key but what a gate is made of: no convolution sees it.
  virtual bool keys_are_gates() const { return false; }
};

struct InnerBuild {
  const Build& build;
  MemorySpace space;
  int64_t heads, dk, dv;
  int64_t gate_rank;  // of gates of low rank
  HeadOptions here;   // which of the layer's heads these are
};

// By the name of the mixer whose recurrence a memory has; those whose gates have low rank.
bool has_gate_rank(const std::string& name);
std::unique_ptr<InnerRule> make_inner_rule(const InnerBuild& inner, const std::string& name);

// Those that are not gates and a recurrence (layers/memory/inner_gated.h).
std::unique_ptr<InnerRule> make_inner_hgrn2(const InnerBuild& inner);
std::unique_ptr<InnerRule> make_inner_rebased(const InnerBuild& inner);
std::unique_ptr<InnerRule> make_inner_mamba2(const InnerBuild& inner);
std::unique_ptr<InnerRule> make_inner_rwkv7(const InnerBuild& inner);

}  // namespace weft
