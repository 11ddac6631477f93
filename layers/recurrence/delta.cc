#include "layers/recurrence/delta.h"

namespace weft {

template class ScanRecurrence<DeltaRule>;

kernels::DeltaScan DeltaRule::scan(const Options& o) {
  Scan scan;
  scan.heads = o.heads, scan.qk_heads = o.qk_heads;
  scan.key = o.dk, scan.value = o.dv;
  scan.scale = o.scale;
  return scan;
}

double DeltaRule::flops_per_token(const Options& o) {
  // The recurrence of linear attention in chunks, the scores of keys with keys, the triangular
  // system and its product with the values, and the state read by the keys.
  constexpr double kChunk = 64;  // the counting of MFU, independent of the kernel's choice
  const auto dk = static_cast<double>(o.dk), dv = static_cast<double>(o.dv);
  return static_cast<double>(o.heads) *
         (kChunk * (2.0 * dk + 2.0 * dv + kChunk / 3.0) + 6.0 * dk * dv);
}

}  // namespace weft
