#include "layers/basic/token_mix.h"

#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

// each(document, its first token, number of tokens)
template <class Each>
void each_document(const Sequence& sequence, Each each) {
  for (int64_t d = 0; d < sequence.count(); ++d) {
    const int64_t begin = sequence.documents[static_cast<size_t>(d)];
    each(d, begin, sequence.documents[static_cast<size_t>(d) + 1] - begin);
  }
}

// The row of one document's history.
View history_of(const State& state, int64_t document) {
  const Shape& shape = state[0].shape();
  return state[0].reshaped({shape[0], shape[2]}).row_range(document, 1).view();
}

}  // namespace

Tensor PreviousToken::run(Exec& exec, const PreviousInputs& in, const Sequence& sequence,
                          const State& entering, State* leaving, NothingKept&) const {
  if (leaving != nullptr) *leaving = fresh(exec, sequence);
  each_document(sequence, [&](int64_t d, int64_t begin, int64_t count) {
    if (count > 1) {
      kernels::copy(exec, in.x.row_range(begin, count - 1),
                    in.before.row_range(begin + 1, count - 1));
    }
    if (count > 0 && entering.empty()) {
      kernels::fill(exec, in.before.row_range(begin, 1), 0.0f);
    } else if (count > 0) {
      kernels::copy(exec, history_of(entering, d), in.before.row_range(begin, 1));
    }
    if (leaving == nullptr) return;
    if (count > 0) {
      kernels::copy(exec, in.x.row_range(begin + count - 1, 1), history_of(*leaving, d));
    } else if (entering.empty()) {
      kernels::fill(exec, history_of(*leaving, d), 0.0f);
    } else {
      kernels::copy(exec, history_of(entering, d), history_of(*leaving, d));
    }
  });
  return {};
}

void PreviousToken::run_backward(Exec& exec, const PreviousInputs&, const Sequence& sequence,
                                 const NothingKept&, const State&, const Cotangents& d,
                                 const PreviousGradients& gradients) const {
  if (d.d_entering != nullptr) *d.d_entering = start(exec, sequence.count());
  each_document(sequence, [&](int64_t i, int64_t begin, int64_t count) {
    if (count > 1) {
      const View to = gradients.dx.row_range(begin, count - 1);
      kernels::add(exec, to, d.d_out.row_range(begin + 1, count - 1), to);
    }
    if (count > 0 && !d.d_leaving.empty()) {
      const View to = gradients.dx.row_range(begin + count - 1, 1);
      kernels::add(exec, to, history_of(d.d_leaving, i), to);
    }
    if (d.d_entering == nullptr) return;
    if (count > 0) {
      kernels::copy(exec, d.d_out.row_range(begin, 1), history_of(*d.d_entering, i));
    } else if (!d.d_leaving.empty()) {
      kernels::copy(exec, history_of(d.d_leaving, i), history_of(*d.d_entering, i));
    }
  });
}

State PreviousToken::state_gradient(Exec& exec, const PreviousInputs&, const Sequence& sequence,
                                    const NothingKept&, const State&, ConstView d_before) const {
  State d_entering = start(exec, sequence.count());
  each_document(sequence, [&](int64_t i, int64_t begin, int64_t count) {
    if (count > 0) kernels::copy(exec, d_before.row_range(begin, 1), history_of(d_entering, i));
  });
  return d_entering;
}

}  // namespace weft
