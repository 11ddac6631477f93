#pragma once

#include <algorithm>
#include <vector>

#include "layers/context/sequence.h"
#include "parallel/sequence/span_rows.h"

namespace weft {

// The algebra of softmax attention: a state is the rows (keys, values, log forget gates) of the
// tokens before, laid out as parallel/sequence/span_rows.h says, or the last window - 1 of them.
//   combine, apply    append the span's rows
//   apply_adjoint     the slice of the rows that were there before
// What a row has been forgotten by is the sum of the gates of the rows behind it, which the state
// holds: appending rows ages those before them, and nothing has to be rewritten.
class RowAlgebra : public SpanAlgebra {
 public:
  explicit RowAlgebra(int64_t window) : window_(window) {}  // 0: everything before is seen

  Exchange exchange() const override { return Exchange::kConcat; }
  State start(Exec& exec, int64_t sequences) const override;
  Summary combine(Exec& exec, const Summary& first, const Summary& second) const override;
  State apply(Exec& exec, const Summary& span, const State& entering) const override;
  State apply_adjoint(Exec& exec, const Summary& span, const State& entering,
                      const State& d_leaving) const override;

 protected:
  // How many of `rows` rows a later token may see.
  int64_t reach(int64_t rows) const { return window_ > 0 ? std::min(rows, window_ - 1) : rows; }

 private:
  int64_t window_;
};

// Rows [begin, end) of the views of all kinds, for each sequence, as a state.
struct RowRange {
  int64_t begin = 0, end = 0;
};
State rows_of(Exec& exec, const std::vector<ConstView>& kinds, const std::vector<RowRange>& ranges);

// Between sequence ranks: who sees whose rows; and what the last document of each chain adds, as
// far back as anybody looks.
SeenRows seen_rows(const Sequence& sequence, int64_t window);
Summary chain_rows(Exec& exec, const std::vector<ConstView>& kinds, const Sequence& sequence,
                   const SeenRows& seen);

}  // namespace weft
