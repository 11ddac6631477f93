#include "kernels/states/cpu/isa/states.h"

#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/isa/transpose.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

void scale_state_rows(const ScaledRows& a, int64_t begin, int64_t end) {
  if (a.width == 1) {  // a factor for every number
    return each_vector(end - begin, [&](int64_t i, auto n) {
      store(a.to + begin + i, load(a.factors + begin + i, n) * load(a.from + begin + i, n), n);
    });
  }
  for (int64_t r = begin; r < end; ++r) {
    const VF factor = splat(a.factors[r]);
    const float* from = a.from + r * a.width;
    float* to = a.to + r * a.width;
    each_vector(a.width, [&](int64_t i, auto n) { store(to + i, factor * load(from + i, n), n); });
  }
}

void scale_state_sides(const ScaledSides& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const VF log = splat(a.rows[r]);
    const float *columns = a.columns + r / a.height * a.width, *from = a.from + r * a.width;
    float* to = a.to + r * a.width;
    each_vector(a.width, [&](int64_t i, auto n) {
      store(to + i, exp(log + load(columns + i, n)) * load(from + i, n), n);
    });
  }
}

void transpose_one(const Transposed& a) {
  const int64_t rows = a.rows / kLanes * kLanes, columns = a.columns / kLanes * kLanes;
  for (int64_t r = 0; r < rows; r += kLanes) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      VF square[kLanes];
      for (int i = 0; i < kLanes; ++i) square[i] = load(a.from + (r + i) * a.columns + c);
      transpose(square);
      for (int i = 0; i < kLanes; ++i) store(a.to + (c + i) * a.rows + r, square[i]);
    }
  }
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = r < rows ? columns : 0; c < a.columns; ++c) {
      a.to[c * a.rows + r] = a.from[r * a.columns + c];
    }
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const StatesTable& table(ThisIsa, const StatesTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr StatesTable table{here::scale_state_rows, here::scale_state_sides,
                                     here::transpose_one};
  return table;
}

}  // namespace weft::kernels
