#include "kernels/rows/cpu/isa/elementwise.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class X, class Y>
void copy_box(const Elementwise& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const X* x = row<X>(a.a, r) + box.left;
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) { store(y + i, load(x + i, n), n); });
  }
}
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

template <class A, class B, class Y>
void add_box(const Elementwise& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const A* left = row<A>(a.a, r) + box.left;
    const B* right = row<B>(a.b, r) + box.left;
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) {
      store(y + i, load(left + i, n) + load(right + i, n), n);
    });
  }
}
void add(const Elementwise& a, const Box& box) {
  with_types(a.a.dtype, a.b.dtype, a.y.dtype, [&](auto l, auto r, auto y) {
    add_box<decltype(l), decltype(r), decltype(y)>(a, box);
  });
}

template <class X, class Y>
void scale_box(const Elementwise& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const X* x = row<X>(a.a, r) + box.left;
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left,
                [&](int64_t i, auto n) { store(y + i, load(x + i, n) * a.factor, n); });
  }
}
void scale(const Elementwise& a, const Box& box) {
  with_types(a.a.dtype, a.y.dtype,
             [&](auto x, auto y) { scale_box<decltype(x), decltype(y)>(a, box); });
}

template <class Y>
void fill_box(const Elementwise& a, const Box& box) {
  const VF value = splat(a.factor);
  for (int64_t r = box.begin; r < box.end; ++r) {
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) { store(y + i, value, n); });
  }
}
void fill(const Elementwise& a, const Box& box) {
  with_types(a.y.dtype, [&](auto y) { fill_box<decltype(y)>(a, box); });
}

template <class Y>
void add_bias_box(const float* bias, const Rows& matrix, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    Y* y = row<Y>(matrix, r);
    const int64_t left = box.left;
    each_vector(box.right - left, [&](int64_t i, auto n) {
      store(y + left + i, load(y + left + i, n) + load(bias + left + i, n), n);
    });
  }
}
void add_bias(const float* bias, const Rows& matrix, const Box& box) {
  with_types(matrix.dtype, [&](auto y) { add_bias_box<decltype(y)>(bias, matrix, box); });
}

template <class X>
void add_rows_box(const ConstRows& matrix, const Box& box, float* sum) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const X* x = row<X>(matrix, r) + box.left;
    float* s = sum + box.left;
    each_vector(box.right - box.left,
                [&](int64_t i, auto n) { store(s + i, load(s + i, n) + load(x + i, n), n); });
  }
}
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

bool all_finite(const ConstRows& matrix, const Box& box) {
  VI bad = {};
  for (int64_t r = box.begin; r < box.end; ++r) {
    const float* x = row<float>(matrix, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) {
      const VF v = load(x + i, n);
      VI bits;
      __builtin_memcpy(&bits, &v, sizeof bits);
      bad |= (bits & 0x7f800000) == 0x7f800000;
    });
  }
  int32_t any = 0;
  for (int i = 0; i < kLanes; ++i) any |= bad[i];
  return any == 0;
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ElementwiseTable& table(ThisIsa, const ElementwiseTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr ElementwiseTable table{here::copy,           here::add,       here::scale,
                                          here::fill,           here::add_bias,  here::add_rows,
                                          here::sum_of_squares, here::all_finite};
  return table;
}

}  // namespace weft::kernels
