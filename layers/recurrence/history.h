#pragma once

#include "layers/recurrence/recurrence.h"

namespace weft {

// How the tokens of a span change a history, the last rows of the tokens before:
//   transition: how many rows the span adds, f32 [n], at most `rows`; update: these rows at the
//   end, zeros before them, f32 [n, rows, width].
Summary history_summary(Exec& exec, ConstView x, const Sequence& sequence, int64_t rows);
State apply_history(Exec& exec, const Summary& span, const State& entering);
State apply_history_adjoint(Exec& exec, const Summary& span, const State& d_leaving);
Summary combine_histories(Exec& exec, const Summary& first, const Summary& second);

struct NothingKept {};

// Parts of a mixer that look back a few rows: short convolutions, token shifts. The state is the
// history, f32 [documents, rows, width], older rows first. Outputs go to a view of the caller's, so
// that run returns no tensor.
template <class In, class Grad>
class HistoryRecurrence : public Recurrence<In, Grad, NothingKept> {
 public:
  using Cotangents = typename Recurrence<In, Grad, NothingKept>::Cotangents;

  bool is_core() const override { return false; }
  double flops_per_token() const override { return 0; }
  int64_t looks_back() const override { return rows_; }
  State start(Exec& exec, int64_t sequences) const override {
    return {exec.zeros({sequences, rows_, width_})};
  }
  Summary combine(Exec& exec, const Summary& first, const Summary& second) const override {
    return combine_histories(exec, first, second);
  }
  State apply(Exec& exec, const Summary& span, const State& entering) const override {
    return apply_history(exec, span, entering);
  }
  State apply_adjoint(Exec& exec, const Summary& span, const State&,
                      const State& d_leaving) const override {
    return apply_history_adjoint(exec, span, d_leaving);
  }
  Summary summarize(Exec& exec, const In& in, const Sequence& sequence) const override {
    return history_summary(exec, in.x, sequence, rows_);
  }

 protected:
  HistoryRecurrence(int64_t rows, int64_t width) : rows_(rows), width_(width) {}

  State fresh(Exec& exec, const Sequence& sequence) const {
    return {exec.empty({sequence.count(), rows_, width_})};
  }

 private:
  int64_t rows_, width_;
};

}  // namespace weft
