#include "kernels/rows/cpu/isa/reductions.h"

#include "kernels/rows/reductions_rows.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

void add_rows(const ConstRows& matrix, const Box& box, float* sum) {
  with_types(matrix.dtype, [&](auto x) { add_rows_box<decltype(x)>(matrix, box, sum); });
}

// In double: the square of a gradient may leave the range of f32 at both ends.
constexpr int kHalf = kLanes / 2;
typedef float HF __attribute__((vector_size(kHalf * 4)));
typedef double VD __attribute__((vector_size(kHalf * 8)));
WEFT_INLINE VD load_wide(const float* p) {
  HF v;
  __builtin_memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, VD);
}
double sum_of_squares(const ConstRows& matrix, const Box& box) {
  VD sums[4] = {};
  double total = 0;
  const int64_t width = box.right - box.left;
  for (int64_t r = box.begin; r < box.end; ++r) {
    const float* x = row<float>(matrix, r) + box.left;
    int64_t i = 0;
    for (; i + 4 * kHalf <= width; i += 4 * kHalf) {
      for (int j = 0; j < 4; ++j) {
        const VD v = load_wide(x + i + j * kHalf);
        sums[j] += v * v;
      }
    }
    for (; i < width; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  const VD sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int i = 0; i < kHalf; ++i) total += sum[i];
  return total;
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ReductionTable& table(ThisIsa, const ReductionTable*) {
  static constexpr ReductionTable table{WEFT_ISA_NAMESPACE::add_rows,
                                        WEFT_ISA_NAMESPACE::sum_of_squares};
  return table;
}

}  // namespace weft::kernels
