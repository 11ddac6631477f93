#include "layers/recurrence/diagonal.h"

namespace weft {

template class ScanRecurrence<DiagonalRule>;

kernels::DiagonalScan DiagonalRule::scan(const Options& o) {
  Scan scan;
  scan.heads = o.heads.heads, scan.kv_heads = o.heads.kv_heads;
  scan.key = o.heads.dk, scan.value = o.heads.dv;
  scan.scale = o.scale;
  return scan;
}

std::vector<Shape> DiagonalRule::one_state(const Options& o) {
  return {{o.heads.heads, o.heads.dk, o.heads.dv}};
}

State DiagonalRule::transition(Exec& exec, const Options& o, const Scan& in,
                               const Sequence& sequence) {
  const HeadOptions& h = o.heads;
  return {summed_rows(exec, in.log_decay, sequence, {h.heads, h.kv_heads, h.dk})};
}

double DiagonalRule::flops_per_token(const Options& o) {
  constexpr double kChunk = 64;  // the counting of MFU, independent of the kernel's choice
  const auto dk = static_cast<double>(o.heads.dk), dv = static_cast<double>(o.heads.dv);
  return static_cast<double>(o.heads.heads) * (kChunk * (dk + dv) + 5.0 * dk * dv);
}

}  // namespace weft
