#pragma once

#include <array>
#include <utility>
#include <vector>

#include "kernels/rows/l2_norm.h"
#include "layers/basic/cast.h"
#include "layers/memory/memory_gate.h"

namespace weft {

// What the inputs of a recurrence are beside q, k and v, in their order.
struct InnerSlot {
  std::optional<MemoryGate::Options> gate = {};  // a gate of every memory
  Parameter* weight = nullptr;                   // or a weight that the memories share, f32
  std::vector<float> numbers = {};               // or one per head, of which nothing is learned
};

enum class UnitLength : uint8_t { kNo, kYes };  // of queries and keys, per head

// Memories of a recurrence whose inputs are {q, k, v, slots...}: gates made of the tokens, then the
// recurrence over the rows of each memory. One class for every such rule.
template <class Recurrence, size_t slots>
class InnerGated final : public InnerRule {
 public:
  InnerGated(const InnerBuild& b, const typename Recurrence::Options& options,
             const std::array<InnerSlot, slots>& given, UnitLength unit = UnitLength::kNo)
      : heads_(b.heads),
        unit_(unit),
        compute_(b.build.compute),
        given_(given.begin(), given.end()),
        gates_(slots),
        recurrence_(options) {
    for (size_t i = 0; i < slots; ++i) {
      if (given[i].gate) gates_[i].emplace(b, *given[i].gate);
    }
  }

  Tensor forward(Exec& exec, const InnerInputs& in, State* state, SavedStack& saved,
                 const Queries& queries) const override {
    Saved f;
    f.gates.resize(slots);
    if (unit_ == UnitLength::kYes) f.k_inv_norm = to_unit(exec, in.k);
    for (size_t i = 0; i < slots; ++i) {
      if (gates_[i]) f.gates[i] = gates_[i]->forward(exec, in);
    }
    const Tensor out =
        recurrence_.forward(exec, inputs(in, f, kSlots), in.rows.sequence, state, saved, [&] {
          queries();
          if (unit_ == UnitLength::kYes) f.q_inv_norm = to_unit(exec, in.q);
        });
    saved.push(std::move(f));
    return in_type(exec, out, compute_);
  }

  void backward(Exec& exec, const InnerInputs& in, ConstView d_out, State* d_state,
                const InnerGradients& gradients, SavedStack& saved) const override {
    const Saved f = saved.pop<Saved>();
    std::vector<Tensor> d(slots);
    for (size_t i = 0; i < slots; ++i) {
      if (gates_[i]) d[i] = exec.empty(f.gates[i].value.shape());
    }
    recurrence_.backward(exec, inputs(in, f, kSlots), in.rows.sequence, d_out, d_state,
                         outputs(gradients, d, kSlots), saved);
    if (unit_ == UnitLength::kYes) {
      from_unit(exec, gradients.q, in.q, f.q_inv_norm);
      from_unit(exec, gradients.k, in.k, f.k_inv_norm);
    }
    for (size_t i = 0; i < slots; ++i) {
      if (gates_[i]) gates_[i]->backward(exec, in, f.gates[i], d[i], gradients.x);
    }
  }

  double flops_per_row() const override { return recurrence_.flops_per_token(); }
  double gate_flops() const override {
    double flops = 0;
    for (const auto& gate : gates_) flops += gate ? gate->flops_per_row() : 0.0;
    return flops;
  }

 private:
  static constexpr auto kSlots = std::make_index_sequence<slots>{};
  struct Saved {
    std::vector<MemoryGate::Saved> gates;
    Tensor q_inv_norm, k_inv_norm;  // [rows, heads]
  };

  ConstView slot(const Saved& f, size_t i) const {
    if (gates_[i]) return f.gates[i].value;
    if (given_[i].weight != nullptr) return flat(given_[i].weight->value);
    if (given_[i].numbers.empty()) return {};
    return {given_[i].numbers.data(), {heads_}, heads_, DType::kF32, {}};
  }
  View slot_gradient(const std::vector<Tensor>& d, size_t i) const {
    if (gates_[i]) return d[i];
    return given_[i].weight != nullptr ? flat(given_[i].weight->grad) : View{};
  }
  static View flat(const Tensor& t) { return t.reshaped({t.elements()}); }
  template <size_t... i>
  typename Recurrence::Inputs inputs(const InnerInputs& in, const Saved& f,
                                     std::index_sequence<i...>) const {
    return {in.q, in.k, in.v, slot(f, i)...};
  }
  template <size_t... i>
  typename Recurrence::Gradients outputs(const InnerGradients& g, const std::vector<Tensor>& d,
                                         std::index_sequence<i...>) const {
    return {g.q, g.k, g.v, slot_gradient(d, i)...};
  }

  Tensor to_unit(Exec& exec, View x) const {
    const Tensor inv_norm = exec.empty({x.rows(), heads_});
    kernels::l2_norm_forward(exec, {.heads = heads_}, x, x, inv_norm);
    return inv_norm;
  }
  void from_unit(Exec& exec, View dx, ConstView x, const Tensor& inv_norm) const {
    kernels::l2_norm_backward(exec, {.heads = heads_}, dx, x, inv_norm, dx);
  }

  int64_t heads_;
  UnitLength unit_;
  DType compute_;
  std::vector<InnerSlot> given_;
  std::vector<std::optional<MemoryGate>> gates_;
  Recurrence recurrence_;
};

}  // namespace weft
