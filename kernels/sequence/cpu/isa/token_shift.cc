#include "kernels/sequence/cpu/isa/token_shift.h"

#include "kernels/cpu/isa/loops.h"

// dx_t = (1 - a_t) dy_t + a_{t+1} dy_{t+1};   d_logit_t = a_t (1 - a_t) dy_t . (x_{t-1} - x_t)
// Before a document's first token x is the entering history, whose gradient is a_0 dy_0; after its
// last token the gradient of the leaving history takes the place of a_{t+1} dy_{t+1}.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

WEFT_INLINE VF share(const TokenShiftArgs& a, int64_t t, int64_t head) {
  return sigmoid(splat(a.logits[t * a.logits_stride + head]));
}

// A row's elements in whatever type, or zeros.
struct AnyRow {
  const float* f = nullptr;
  const bf16* b = nullptr;

  template <class N>
  WEFT_INLINE VF at(int64_t i, N n) const {
    if (f != nullptr) return load(f + i, n);
    return b != nullptr ? load(b + i, n) : VF{};
  }
};
WEFT_INLINE AnyRow any_row(const ConstRows& rows, int64_t i, int64_t column) {
  if (rows.data == nullptr) return {};
  if (rows.dtype == DType::kF32) return {row<float>(rows, i) + column, nullptr};
  return {nullptr, row<bf16>(rows, i) + column};
}

WEFT_INLINE AnyRow row_before(const TokenShiftArgs& a, int64_t t, int64_t column) {
  return a.begins[t] < 0 ? any_row(a.x, t - 1, column) : any_row(a.entering, a.begins[t], column);
}

template <class T>
void forward_rows(const TokenShiftArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const VF from_before = share(a, t, h);
      const T* x = row<T>(a.x, t) + h * a.width;
      const AnyRow before = row_before(a, t, h * a.width);
      T* y = row<T>(a.y, t) + h * a.width;
      each_vector(a.width, [&](int64_t i, auto n) {
        const VF here = load(x + i, n);
        store(y + i, here + from_before * (before.at(i, n) - here), n);
      });
    }
  }
}

template <class T>
void backward_rows(const TokenShiftArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const bool last = a.ends[t] >= 0;
    for (int64_t h = 0; h < a.heads; ++h) {
      const VF from_before = share(a, t, h), from_here = 1.0f - from_before;
      const T* x = row<T>(a.x, t) + h * a.width;
      const AnyRow before = row_before(a, t, h * a.width);
      const T* dy = row<T>(a.dy, t) + h * a.width;
      const AnyRow after =
          last ? any_row(a.d_leaving, a.ends[t], h * a.width) : any_row(a.dy, t + 1, h * a.width);
      const VF to_after = last ? splat(1.0f) : share(a, t + 1, h);
      T* dx = row<T>(a.y, t) + h * a.width;
      const float slope = sum_over(a.width, [&](int64_t i, auto n) {
        const VF d = load(dy + i, n);
        store(dx + i, from_here * d + to_after * after.at(i, n), n);
        return d * (before.at(i, n) - load(x + i, n));
      });
      a.d_logits[t * a.d_logits_stride + h] = slope * (from_before * from_here)[0];
    }
  }
}

void forward(const TokenShiftArgs& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, [&](auto x) { forward_rows<decltype(x)>(a, begin, end); });
}
void backward(const TokenShiftArgs& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, [&](auto x) { backward_rows<decltype(x)>(a, begin, end); });
}

void history_backward(const TokenShiftArgs& a, int64_t document, int64_t first) {
  for (int64_t h = 0; h < a.heads; ++h) {
    const AnyRow from =
        first < 0 ? any_row(a.d_leaving, document, h * a.width) : any_row(a.dy, first, h * a.width);
    const VF part = first < 0 ? splat(1.0f) : share(a, first, h);
    with_types(a.d_entering.dtype, [&](auto d) {
      auto* to = row<decltype(d)>(a.d_entering, document) + h * a.width;
      each_vector(a.width, [&](int64_t i, auto n) { store(to + i, part * from.at(i, n), n); });
    });
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const TokenShiftTable& table(ThisIsa, const TokenShiftTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr TokenShiftTable table{here::forward, here::backward, here::history_backward};
  return table;
}

}  // namespace weft::kernels
