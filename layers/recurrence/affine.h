#pragma once

#include "layers/recurrence/recurrence.h"

namespace weft {

// How a span multiplies what enters it.
enum class Transition : uint8_t {
  kFactor,  // by e^f: f has the leading dimensions of the state's tensors ([n, heads]: one number
            // per head; [n, heads, dk]: one per row; all of them: one per entry). Where decays are
            // weights, f = t w: weights w without n, and times t [n] or [n, the last of w's
            // dimensions], the number of tokens for example. No transition: by 1
  kSides,   // by e^{r_i + c_j}: rows r [n, heads, dk], columns c [n, heads, dv] of a state
            // [n, heads, dk, dv]
  kTurn,    // by complex numbers [n, heads, 2, dk]; state [n, heads, 2, dk, dv], real parts before
            // imaginary ones
  kDense,   // by a matrix [n, heads, K, K] from the left, K the rows of all state tensors together
};

// Every tensor of `state` after the transition of `span`; by its transpose; and two transitions as
// one.
State transform(Exec& exec, Transition kind, const Summary& span, const State& state);
State transform_adjoint(Exec& exec, Transition kind, const Summary& span, const State& state);
State compose(Exec& exec, Transition kind, const State& first, const State& second);
State add_states(Exec& exec, const State& a, const State& b);

// Sums over the tokens of each document of x f32 [tokens, kv_heads * width], for every head:
// [documents, heads, width].
struct HeadRows {
  int64_t heads, kv_heads, width;
};
Tensor summed_rows(Exec& exec, ConstView x, const Sequence& sequence, const HeadRows& of);
// Tokens of each document, f32 [documents].
Tensor token_counts(Exec& exec, const Sequence& sequence);

// A recurrence whose span is affine in the entering state:  S -> transition S + update.
template <class In, class Grad, class Keep>
class AffineRecurrence : public Recurrence<In, Grad, Keep> {
 public:
  State start(Exec& exec, int64_t sequences) const override {
    State state;
    for (const Shape& one : one_) state.push_back(exec.zeros(with_count(sequences, one)));
    return state;
  }
  Summary combine(Exec& exec, const Summary& first, const Summary& second) const override {
    return {compose(exec, kind_, first.transition, second.transition),
            apply(exec, second, first.update), first.weights};
  }
  State apply(Exec& exec, const Summary& span, const State& entering) const override {
    return add_states(exec, transform(exec, kind_, span, entering), span.update);
  }
  State apply_adjoint(Exec& exec, const Summary& span, const State&,
                      const State& d_leaving) const override {
    return transform_adjoint(exec, kind_, span, d_leaving);
  }

  // The gradient of the entering states by a whole backward pass; families with a cheaper way
  // override it.
  State state_gradient(Exec& exec, const In& in, const Sequence& sequence, const Keep& keep,
                       const State& entering, ConstView d_out) const override {
    std::vector<Tensor> scratch;
    State d_entering;
    this->run_backward(exec, in, sequence, keep, entering, {d_out, {}, &d_entering},
                       scratch_gradients(exec, in, scratch));
    return d_entering;
  }

 protected:
  // Gradients that are not read; `hold` keeps their memory.
  virtual Grad scratch_gradients(Exec& exec, const In& in, std::vector<Tensor>& hold) const = 0;

  static View scratch_like(Exec& exec, ConstView view, std::vector<Tensor>& hold) {
    if (view.data == nullptr) return {};
    hold.push_back(exec.zeros(view.shape, view.dtype));
    return hold.back();
  }

  // `one`: shapes of the state's tensors for one document, [heads, ...].
  AffineRecurrence(Transition kind, std::vector<Shape> one) : kind_(kind), one_(std::move(one)) {}

  static Shape with_count(int64_t count, const Shape& one) {
    Shape shape{count};
    for (int i = 0; i < one.dims(); ++i) shape.append(one[i]);
    return shape;
  }
  const std::vector<Shape>& one_state() const { return one_; }

 private:
  Transition kind_;
  std::vector<Shape> one_;
};

}  // namespace weft
