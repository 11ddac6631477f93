#pragma once

#include "kernels/tile/cpu_storage.h"
#include "kernels/tile/view.h"

// What drivers of scans with decays per channel share: chunks, and the states between them that
// backward rebuilds. Include only from kernels/cpu/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

constexpr int64_t kChunk = 64;

WEFT_INLINE int64_t chunk_length(int64_t begin, int64_t tokens) {
  return tokens - begin < kChunk ? tokens - begin : kChunk;
}

// to = state^T, or zero.
WEFT_INLINE void turn_state(const tile::In& state, const tile::Out& to) {
  const auto* data = static_cast<const float*>(state.data);
  for (int64_t i = 0; i < to.rows; ++i) {
    auto* row = static_cast<float*>(to.data) + i * to.stride;
    for (int64_t j = 0; j < to.columns; ++j) {
      row[j] = state.empty() ? 0.0f : data[j * state.stride + i];
    }
  }
}

// States M^T before every chunk and after the last one: f32 [value, key], laid out as operands.
struct States {
  float* first;
  int64_t key, value;
  WEFT_INLINE static int64_t size(int64_t key, int64_t value) {
    return round_up(value, 4) * padded_width(key);
  }
  WEFT_INLINE tile::Out at(int64_t chunk) const {
    return {first + chunk * size(key, value), padded_width(key), value, key, DType::kF32};
  }
};

WEFT_INLINE tile::In readable(const tile::Out& view) {
  return {view.data, view.stride, view.rows, view.columns, view.dtype};
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
