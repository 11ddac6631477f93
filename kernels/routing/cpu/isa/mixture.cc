#include "kernels/routing/cpu/isa/mixture.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

void forward(const MixRowsArgs& a, int64_t begin, int64_t end) {
  with_types(a.rows.dtype, a.y.dtype,
             [&](auto x, auto y) { forward_rows<decltype(x), decltype(y)>(a, begin, end); });
}
void backward(const MixRowsArgs& a, int64_t begin, int64_t end) {
  with_types(a.rows.dtype, a.dy.dtype, a.y.dtype, [&](auto x, auto d, auto y) {
    backward_rows<decltype(x), decltype(d), decltype(y)>(a, begin, end);
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const MixRowsTable& table(ThisIsa, const MixRowsTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr MixRowsTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
