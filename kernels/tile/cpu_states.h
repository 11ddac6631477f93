#pragma once

#include "kernels/tile/cpu.h"

// What drivers of scans share that walk over chunks: their lengths, and the states between them.
// Include only from kernels/cpu/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

constexpr int64_t kChunk = 64;  // 128 takes a third longer at head widths 64 and 128

WEFT_INLINE int64_t chunk_count(int64_t tokens) { return (tokens + kChunk - 1) / kChunk; }
WEFT_INLINE int64_t chunk_length(int64_t begin, int64_t tokens) {
  return tokens - begin < kChunk ? tokens - begin : kChunk;
}

WEFT_INLINE tile::In readable(const tile::Out& view) {
  return {view.data, view.stride, view.rows, view.columns, view.dtype};
}

// What forward keeps for backward, or backward finds out again, has the type of the inputs, which
// products round to anyway. `first` is aligned to 64 bytes.
enum class Reader : uint8_t { kMuchLater, kSoon };
WEFT_INLINE int64_t kept_floats(int64_t rows, int64_t columns, DType type) {
  return round_up(rows * columns * size_of(type), 64) / 4;
}
WEFT_INLINE tile::Out kept_matrix(float* first, int64_t rows, int64_t columns, DType type,
                                  Reader reader) {
  const bool lines = columns * size_of(type) % 64 == 0;
  return {first, columns, rows, columns, type, reader == Reader::kMuchLater && lines};
}

// One [chunk, chunk] that may be borrowed as an operand in f32.
WEFT_INLINE int64_t square_stride(DType type) {
  return type == DType::kF32 ? padded_width(kChunk) : round_up(kChunk, 32);
}
WEFT_INLINE int64_t square_floats(DType type) {
  return kept_floats(kChunk, square_stride(type), type);
}
WEFT_INLINE tile::Out kept_square(float* first, int64_t count, DType type, Reader reader) {
  return {first, square_stride(type), count, count, type, reader == Reader::kMuchLater};
}

// States before every chunk and after the last one, [key, value] each. No memory: none are wanted.
struct States {
  float* first;
  int64_t key, value;
  DType type;
  Reader reader;

  WEFT_INLINE static int64_t floats(int64_t tokens, int64_t key, int64_t value, DType type) {
    return (chunk_count(tokens) + 1) * kept_floats(key, value, type);
  }
  WEFT_INLINE tile::Out at(int64_t chunk) const {
    if (first == nullptr) return {};
    return kept_matrix(first + chunk * kept_floats(key, value, type), key, value, type, reader);
  }
};

// m = the state that a document starts from, kept as the first one.
template <class Engine, class Op>
WEFT_INLINE void start_states(Engine& e, const tile::In& initial_state, const States& states,
                              Op& m) {
  e.load(m, initial_state);  // zeros when empty
  if (states.first != nullptr) e.run(tile::kFull, tile::take(m), tile::store(states.at(0)));
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
