#pragma once

#include "kernels/tile/cpu.h"

// Shared by scans that walk over chunks: lengths of chunks, and the states between them.
// Include only from cpu/isa/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

constexpr int64_t kChunk = 64;  // 128 takes a third longer at head widths 64 and 128

WEFT_INLINE int64_t chunk_count(int64_t tokens) { return (tokens + kChunk - 1) / kChunk; }
WEFT_INLINE int64_t chunk_length(int64_t begin, int64_t tokens) {
  return tokens - begin < kChunk ? tokens - begin : kChunk;
}

WEFT_INLINE tile::In readable(const tile::Out& view) {
  return {view.data, view.stride, view.rows, view.columns, view.dtype};
}

// States that forward keeps for backward, or backward recomputes, have the type of operands.
// `first` is aligned to 64 bytes.
inline constexpr DType kKeptType = EngineWords::kPerWord == 2 ? DType::kBF16 : DType::kF32;
enum class Reader : uint8_t { kMuchLater, kSoon };
WEFT_INLINE int64_t line_width(int64_t columns,
                               DType type) {  // of rows that begin with a cache line
  return round_up(columns, 64 / size_of(type));
}
WEFT_INLINE int64_t kept_floats(int64_t rows, int64_t columns, DType type) {
  return rows * line_width(columns, type) * size_of(type) / 4;
}
WEFT_INLINE tile::Out kept_matrix(float* first, int64_t rows, int64_t columns, DType type,
                                  Reader reader) {
  return {first, line_width(columns, type), rows, columns, type, reader == Reader::kMuchLater};
}

// One [chunk, chunk] that may be borrowed as an operand where words are entries.
inline constexpr int64_t kSquareStride =
    EngineWords::kPerWord == 1 ? padded_width(kChunk) : round_up(kChunk, 32);
inline constexpr int64_t kSquareFloats = kChunk * kSquareStride / EngineWords::kPerWord;
WEFT_INLINE tile::Out kept_square(float* first, int64_t count, Reader reader) {
  return {first, kSquareStride, count, count, kKeptType, reader == Reader::kMuchLater};
}

// States before every chunk and after the last one, [key, value] each. No memory: none are wanted.
struct States {
  float* first;
  int64_t key, value;
  Reader reader;

  WEFT_INLINE static int64_t floats(int64_t tokens, int64_t key, int64_t value) {
    return (chunk_count(tokens) + 1) * kept_floats(key, value, kKeptType);
  }
  WEFT_INLINE tile::Out at(int64_t chunk) const {
    if (first == nullptr) return {};
    float* state = first + chunk * kept_floats(key, value, kKeptType);
    return kept_matrix(state, key, value, kKeptType, reader);
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
