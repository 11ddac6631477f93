#pragma once

#include <array>
#include <utility>
#include <vector>

#include "kernels/rows/elementwise.h"
#include "kernels/scan/scan_fields.h"
#include "kernels/states/matrices.h"
#include "layers/context/state.h"
#include "layers/recurrence/affine.h"

namespace weft {

// A recurrence that is one scan. Inputs and gradients are the kernel's own structs, filled by the
// list of their fields; a rule says what is left:
//   Scan, Options         the kernel's struct; heads, widths, scale
//   kProgram              its name in benchmarks
//   kTransition           how a span multiplies what enters it
//   kFields               the fields of Scan that it reads: q, k, v, then its gates
//   kKept, kForward, kBackward                  the kernels
//   scan(options)         Scan without fields and documents
//   one_state(options)    shapes of the state's tensors for one document
//   flops_per_token(options)
//   transition(exec, options, in, sequence)     unless it is dense; a dense rule has Options::dv
//   entering, leaving, set_entering             states as the kernels take them; see OneState
template <class Rule>
struct ScanInputs : Rule::Scan {
  ScanInputs(ConstView q, ConstView k, ConstView v, ConstView first = {}, ConstView second = {},
             ConstView third = {}) {
    const ConstView all[] = {q, k, v, first, second, third};
    for (size_t i = 0; i < Rule::kFields.size(); ++i) {
      this->*Rule::Scan::fields()[Rule::kFields[i]].input = all[i];
    }
  }
};

// Overwritten, but for parameters of the scan, which are added to.
template <class Rule>
struct ScanGradients : Rule::Scan::Gradients {
  ScanGradients(View q, View k, View v, View first = {}, View second = {}, View third = {}) {
    const View all[] = {q, k, v, first, second, third};
    for (size_t i = 0; i < Rule::kFields.size(); ++i) {
      this->*Rule::Scan::fields()[Rule::kFields[i]].gradient = all[i];
    }
  }
};

struct ScanKept {
  Tensor chunks;  // results of forward for each chunk; if undefined, backward recomputes them
};

// Rules whose state is one tensor [documents, heads, dk, dv].
struct OneState {
  template <class Options>
  static ConstView entering(const Options&, const State& state) {
    return given(state);
  }
  template <class Options>
  static View leaving(const Options&, const State& state) {
    return state.empty() ? View{} : state[0].view();
  }
  template <class Gradients>
  static void set_entering(Gradients& gradients, View d_entering) {
    gradients.d_initial_state = d_entering;
  }
};

template <class Rule>
class ScanRecurrence final
    : public AffineRecurrence<ScanInputs<Rule>, ScanGradients<Rule>, ScanKept> {
 public:
  using Base = AffineRecurrence<ScanInputs<Rule>, ScanGradients<Rule>, ScanKept>;
  using In = ScanInputs<Rule>;
  using Options = typename Rule::Options;
  using Cotangents = typename Base::Cotangents;

  explicit ScanRecurrence(const Options& options)
      : Base(Rule::kTransition, Rule::one_state(options)), options_(options) {}

  Tensor run(Exec& exec, const In& in, const Sequence& sequence, const State& entering,
             State* leaving, ScanKept& keep) const override {
    const Bound bound(*this, in, sequence);
    const Scan& scan = bound.scan;
    const Tensor out = exec.empty({sequence.tokens(), scan.heads * scan.value}, in.v.dtype);
    if (leaving != nullptr) *leaving = room(exec, sequence.count());
    if (sequence.chunk_states == ChunkStates::kKept) {
      keep.chunks = exec.empty({Rule::kKept(exec, scan)});
    }
    Rule::kForward(exec, scan, Rule::entering(options_, entering), out,
                   Rule::leaving(options_, leaving == nullptr ? State{} : *leaving),
                   wanted(keep.chunks));
    return out;
  }

  void run_backward(Exec& exec, const In& in, const Sequence& sequence, const ScanKept& keep,
                    const State& entering, const Cotangents& d,
                    const ScanGradients<Rule>& gradients) const override {
    typename Scan::Gradients out = gradients;
    if (d.d_entering != nullptr) {
      *d.d_entering = room(exec, sequence.count());
      if (!entering.empty()) d.d_entering->resize(entering.size());
      Rule::set_entering(out, Rule::leaving(options_, *d.d_entering));
    }
    Rule::kBackward(exec, Bound(*this, in, sequence).scan, Rule::entering(options_, entering),
                    d.d_out, Rule::entering(options_, d.d_leaving), out, given(keep.chunks));
  }

  Summary summarize(Exec& exec, const In& in, const Sequence& sequence) const override {
    if constexpr (Rule::kTransition == Transition::kDense) {
      return {{matrix(exec, in, sequence)}, pass(exec, in, sequence, {})};
    } else {
      return {Rule::transition(exec, options_, in, sequence), pass(exec, in, sequence, {})};
    }
  }

  std::string_view program() const override { return Rule::kProgram; }
  double flops_per_token() const override { return Rule::flops_per_token(options_); }

 protected:
  ScanGradients<Rule> scratch_gradients(Exec& exec, const In& in,
                                        std::vector<Tensor>& hold) const override {
    ScanGradients<Rule> gradients({}, {}, {});
    for (const size_t i : Rule::kFields) {
      const auto& field = Scan::fields()[i];
      gradients.*field.gradient = Base::scratch_like(exec, in.*field.input, hold);
    }
    return gradients;
  }

 private:
  using Scan = typename Rule::Scan;

  // The kernel's struct of a span, with the memory that it refers to.
  struct Bound {
    Bound(const ScanRecurrence& rule, const In& in, const Sequence& sequence)
        : scan(Rule::scan(rule.options_)) {
      for (const size_t i : Rule::kFields) {
        const auto input = Scan::fields()[i].input;
        scan.*input = in.*input;
      }
      scan.documents = sequence.documents;
      if constexpr (requires { scan.before; }) {
        before = tokens_before(sequence);
        scan.before = before;
      }
    }
    Bound(const Bound&) = delete;
    Bound& operator=(const Bound&) = delete;
    Scan scan;
    std::vector<int32_t> before;
  };

  State room(Exec& exec, int64_t count) const {
    State state;
    for (const Shape& one : this->one_state()) {
      state.push_back(exec.empty(Base::with_count(count, one)));
    }
    return state;
  }

  // The states that leave the documents, without queries and outputs.
  State pass(Exec& exec, const In& in, const Sequence& sequence, const State& entering) const {
    const State leaving = room(exec, sequence.count());
    Rule::kForward(exec, Bound(*this, in, sequence).scan, Rule::entering(options_, entering), {},
                   Rule::leaving(options_, leaving), {});
    return leaving;
  }

  // A span of zero values is linear in its state: it takes the identity to its matrix.
  Tensor matrix(Exec& exec, const In& in, const Sequence& sequence) const
      requires(Rule::kTransition == Transition::kDense) {
    const Shape& one = this->one_state()[0];
    const int64_t heads = one[0], dk = one[1], rows = std::ssize(this->one_state()) * dk;
    Options wide = options_;
    wide.dv = rows;
    const Tensor none = exec.zeros({sequence.tokens(), heads * rows}, in.v.dtype);
    In silent = in;
    silent.v = none;
    const ScanRecurrence linear(wide);
    const State identity = linear.room(exec, sequence.count());
    for (size_t part = 0; part < identity.size(); ++part) {
      kernels::set_identity(exec, static_cast<int64_t>(part) * dk, identity[part]);
    }
    const State leaving = linear.pass(exec, silent, sequence, identity);
    if (leaving.size() == 1) return leaving[0];
    const Tensor all = exec.empty({sequence.count(), heads, rows, rows});
    const int64_t size = dk * rows;  // of one part of a head
    const View flat = all.reshaped({sequence.count() * heads, rows * rows});
    for (size_t part = 0; part < leaving.size(); ++part) {
      kernels::copy(exec, leaving[part].reshaped({sequence.count() * heads, size}),
                    flat.columns(static_cast<int64_t>(part) * size, size));
    }
    return all;
  }

  Options options_;
};

}  // namespace weft
