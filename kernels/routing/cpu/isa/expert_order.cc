#include "kernels/routing/cpu/isa/expert_order.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

void combine(const CombineArgs& a, int64_t begin, int64_t end) {
  with_types(a.rows.dtype, a.y.dtype,
             [&](auto x, auto y) { combine_rows<decltype(x), decltype(y)>(a, begin, end); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ExpertOrderTable& table(ThisIsa, const ExpertOrderTable*) {
  static constexpr ExpertOrderTable table{WEFT_ISA_NAMESPACE::combine};
  return table;
}

}  // namespace weft::kernels
