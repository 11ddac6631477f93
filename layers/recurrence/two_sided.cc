#include "layers/recurrence/two_sided.h"

namespace weft {

template class ScanRecurrence<TwoSidedRule>;

State TwoSidedRule::transition(Exec& exec, const Options& o, const Scan& in,
                               const Sequence& sequence) {
  const HeadOptions& h = o.heads;
  return {summed_rows(exec, in.log_decay, sequence, {h.heads, h.kv_heads, h.dk}),
          summed_rows(exec, in.value_log_decay, sequence, {h.heads, h.kv_heads, h.dv})};
}

double TwoSidedRule::flops_per_token(const Options& o) {
  // As with decays per key channel, and another product with the state for those of the values.
  return DiagonalRule::flops_per_token(o) + static_cast<double>(o.heads.heads) *
                                                static_cast<double>(o.heads.dk) *
                                                static_cast<double>(o.heads.dv);
}

}  // namespace weft
