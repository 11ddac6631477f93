#pragma once

#include <memory>

#include "layers/memory/memory_linear.h"
#include "layers/mixers/mixer.h"

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
  // [rows, heads * dv] in the compute type.
  virtual Tensor forward(Exec& exec, const InnerInputs& in, State* state,
                         SavedStack& saved) const = 0;
  // `in` holds q, k, v as forward left them; d_out f32.
  virtual void backward(Exec& exec, const InnerInputs& in, ConstView d_out, State* d_state,
                        const InnerGradients& gradients, SavedStack& saved) const = 0;
  virtual double flops_per_row() const = 0;          // of the recurrence
  virtual double gate_flops() const { return 0.0; }  // of the gates' projections, per row of them
};

struct InnerBuild {
  const Build& build;
  MemorySpace space;
  int64_t heads, dk, dv;
  int64_t gate_rank;  // gla
  HeadOptions here;   // which of the layer's heads these are
};

std::unique_ptr<InnerRule> make_inner_scalar(const InnerBuild& inner, const std::string& name);
std::unique_ptr<InnerRule> make_inner_gla(const InnerBuild& inner);
enum class InnerDecay : uint8_t { kNo, kYes };
std::unique_ptr<InnerRule> make_inner_delta(const InnerBuild& inner, InnerDecay decay);

}  // namespace weft
