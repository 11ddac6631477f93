#include "kernels/rows/cpu/isa/elementwise.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

// Bits pass through, those of NaNs and subnormals too.
template <class T>
void copy_bits(const Elementwise& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    __builtin_memmove(row<T>(a.y, r) + box.left, row<T>(a.a, r) + box.left,
                      static_cast<size_t>(box.right - box.left) * sizeof(T));
  }
}
void copy(const Elementwise& a, const Box& box) {
  if (a.a.dtype == a.y.dtype) {
    return with_types(a.a.dtype, [&](auto x) { copy_bits<decltype(x)>(a, box); });
  }
  if (a.a.dtype == DType::kF32) return copy_box<float, bf16>(a, box);
  copy_box<bf16, float>(a, box);
}
void add(const Elementwise& a, const Box& box) {
  with_types(a.a.dtype, a.b.dtype, a.y.dtype, [&](auto l, auto r, auto y) {
    add_box<decltype(l), decltype(r), decltype(y)>(a, box);
  });
}
void scale(const Elementwise& a, const Box& box) {
  with_types(a.a.dtype, a.y.dtype,
             [&](auto x, auto y) { scale_box<decltype(x), decltype(y)>(a, box); });
}
void shift_scale(const Elementwise& a, const Box& box) {
  with_types(a.a.dtype, a.y.dtype,
             [&](auto x, auto y) { shift_scale_box<decltype(x), decltype(y)>(a, box); });
}
void fill(const Elementwise& a, const Box& box) {
  with_types(a.y.dtype, [&](auto y) { fill_box<decltype(y)>(a, box); });
}
void add_bias(const AddBias& a, const Box& box) {
  with_types(a.y.dtype, [&](auto y) { add_bias_box<decltype(y)>(a, box); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ElementwiseTable& table(ThisIsa, const ElementwiseTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr ElementwiseTable table{here::copy,        here::add,  here::scale,
                                          here::shift_scale, here::fill, here::add_bias};
  return table;
}

}  // namespace weft::kernels
