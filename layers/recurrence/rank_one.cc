#include "layers/recurrence/rank_one.h"

namespace weft {

template class ScanRecurrence<RankOneRule>;

kernels::RankOneScan RankOneRule::scan(const Options& o) {
  Scan scan;
  scan.heads = o.heads;
  scan.key = o.dk, scan.value = o.dv;
  scan.scale = o.scale;
  return scan;
}

double RankOneRule::flops_per_token(const Options& o) {
  // In chunks: scores of two kinds of queries with two kinds of keys, their products with the
  // values (half of a square each), the triangular system, and the state read twice and written
  // twice.
  constexpr double kChunk = 64;  // the counting of MFU, independent of the kernel's choice
  const auto dk = static_cast<double>(o.dk), dv = static_cast<double>(o.dv);
  return static_cast<double>(o.heads) *
         (kChunk * (4.0 * dk + 4.0 * dv + kChunk / 3.0) + 8.0 * dk * dv);
}

}  // namespace weft
