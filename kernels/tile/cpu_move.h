#pragma once

#include <type_traits>

#include "kernels/cpu/isa/transpose.h"
#include "kernels/tile/cpu_storage.h"
#include "kernels/tile/view.h"

// Loads into operands: widening or rounding into the words of their products, and transposing for
// the uses that want it.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Lanes [j, j + kLanes) of a row of `columns` elements; beyond the end zeros are read, nothing
// written.
template <class T>
WEFT_INLINE VF load_lanes(const T* row, int64_t j, int64_t columns) {
  if (j + kLanes <= columns) return load(row + j);
  return j < columns ? load_part(row + j, columns - j) : VF{};
}
template <class T>
WEFT_INLINE void store_lanes(T* row, int64_t j, int64_t columns, VF x) {
  if (j + kLanes <= columns) {
    store(row + j, x);
  } else if (j < columns) {
    store_part(row + j, x, columns - j);
  }
}

// kVectorColumns neighbours in a row.
struct Two {
  VF first, second;
};
WEFT_INLINE void put_two(float* p, const Two& x) {
  put_floats(p, x.first);
  put_floats(p + kLanes, x.second);
}
WEFT_INLINE void store_two(float* p, const Two& x) { put_two(p, x); }
WEFT_INLINE void store_two(bf16* p, const Two& x) {
  PairWords::put_along(p, PairWords::of_columns(x.first, x.second));
}
// Past the caches; p is aligned as vectors are.
WEFT_INLINE void stream_two(float* p, const Two& x) {
  stream(p, x.first);
  stream(p + kLanes, x.second);
}
WEFT_INLINE void stream_two(bf16* p, const Two& x) {
  stream(reinterpret_cast<float*>(p), PairWords::of_columns(x.first, x.second));
}

// kLanes words of bf16 from column j on, as they lie in memory.
WEFT_INLINE VF load_pairs(const bf16* row, int64_t j, int64_t columns) {
  if (j + 2 * kLanes <= columns) return PairWords::along(row, j / 2);
  bf16 part[2 * kLanes] = {};
  for (int64_t c = 0; j + c < columns; ++c) part[c] = row[j + c];
  return PairWords::along(part, 0);
}

// Entries (i, j ..) and (i + 1, j ..) of an operand, i even, kVectorColumns of each, into all
// forms of it but the turned one.
template <class Op>
WEFT_INLINE void put_rows(Op& op, int64_t i, int64_t j, const Two& even, const Two& odd) {
  const bool both = i + 1 < op.rows;
  if constexpr (Op::has_plain) {
    put_two(op.plain + i * op.stride + j, even);
    if (both) put_two(op.plain + (i + 1) * op.stride + j, odd);
  }
  if constexpr (Op::has_left) {
    auto* to = reinterpret_cast<bf16*>(op.left + i * op.left_stride) + j;
    store_two(to, even);
    if (both) store_two(to + 2 * op.left_stride, odd);
  }
  if constexpr (Op::has_down) {
    put_two(op.down + i / 2 * op.down_stride + j, {PairWords::of_rows(even.first, odd.first),
                                                   PairWords::of_rows(even.second, odd.second)});
  }
}

// The turned form is made of squares of kLanes rows and words: row_words(i, word) gives a vector,
// 0 <= i < op.rows.
template <class Op, class Get>
WEFT_INLINE void fill_turned(Op& op, Get row_words) {
  const int64_t width = Op::words(op.columns);
  for (int64_t i = 0; i < op.rows; i += kLanes) {
    const int64_t rows = op.rows - i;
    for (int64_t w = 0; w < width; w += kLanes) {
      VF x[kLanes];
      if (rows >= kLanes) {
#pragma GCC unroll 16
        for (int64_t r = 0; r < kLanes; ++r) x[r] = row_words(i + r, w);
      } else {
        for (int64_t r = 0; r < kLanes; ++r) x[r] = r < rows ? row_words(i + r, w) : VF{};
      }
      transpose(x);
      float* to = op.turned + w * op.turned_stride + i;
      const int64_t count = width - w;
#pragma GCC unroll 16
      for (int64_t c = 0; c < kLanes; ++c) {
        if (c < count) put_floats(to + c * op.turned_stride, x[c]);
      }
    }
  }
}

// The risen form, from the words down the rows.
template <class Op>
WEFT_INLINE void fill_risen(Op& op) {
  const int64_t height = Op::words(op.rows);
  for (int64_t w = 0; w < height; w += kLanes) {
    for (int64_t j = 0; j < op.columns; j += kLanes) {
      VF x[kLanes];
      for (int64_t r = 0; r < kLanes; ++r)
        x[r] = w + r < height ? get_floats(op.down + (w + r) * op.down_stride + j) : VF{};
      transpose(x);
      for (int64_t c = 0; c < kLanes && j + c < op.columns; ++c)
        put_floats(op.risen + (j + c) * op.risen_stride + w, x[c]);
    }
  }
}

// The turned form, from the entries or the words of A, and the risen one, after a run has put into
// op.
template <class Op>
WEFT_INLINE void turn(Op& op) {
  if constexpr (Op::has_risen) fill_risen(op);
  if constexpr (!Op::has_turned) {
    return;
  } else if constexpr (Op::exact) {
    fill_turned(op, [&](int64_t i, int64_t j) { return get_floats(op.plain + i * op.stride + j); });
  } else if constexpr (Op::has_left) {
    fill_turned(op,
                [&](int64_t i, int64_t w) { return get_floats(op.left + i * op.left_stride + w); });
  } else {
    static_assert(Op::has_plain, "nothing to make the turned form of");
    fill_turned(op, [&](int64_t i, int64_t w) {
      const float* at = op.plain + i * op.stride + 2 * w;
      return PairWords::of_columns(get_floats(at), get_floats(at + kLanes));
    });
  }
}

// All words from the entries, after something else than a run has written those.
template <class Op>
WEFT_INLINE void words_of_entries(Op& op) {
  static_assert(Op::has_plain);
  if constexpr (!Op::exact && (Op::has_left || Op::has_down)) {
    OperandPart<typename Op::Words, Op::uses & ~tile::kEntries> words(op);
    for (int64_t i = 0; i < op.rows; i += 2) {
      const float* at = op.plain + i * op.stride;
      const bool both = i + 1 < op.rows;
      for (int64_t j = 0; j < op.columns; j += kVectorColumns) {
        const float* below = at + op.stride + j;
        put_rows(words, i, j, {get_floats(at + j), get_floats(at + j + kLanes)},
                 both ? Two{get_floats(below), get_floats(below + kLanes)} : Two{VF{}, VF{}});
      }
    }
  }
  turn(op);
}

// Two bf16 rows as words of op, as they are.
template <class Op>
WEFT_INLINE void copy_rows(Op& op, int64_t i, const bf16* const (&rows)[2]) {
  if constexpr (Op::has_left) {
    float* to = op.left + i * op.left_stride;
    for (int64_t j = 0; j < op.columns; j += 2 * kLanes) {
      put_floats(to + j / 2, PairWords::along(rows[0], j / 2));
      put_floats(to + op.left_stride + j / 2, PairWords::along(rows[1], j / 2));
    }
  }
  if constexpr (Op::has_down) {
    float* to = op.down + i / 2 * op.down_stride;
    for (int64_t j = 0; j < op.columns; j += kLanes) put_floats(to + j, PairWords::across(rows, j));
  }
}

// op(i, j) = f(i, j, view(i, j)), in the forms that `op` is used in.
template <class Op, class T, class F>
WEFT_INLINE void load_operand(Op& op, const T* data, const tile::In& view, F f) {
  constexpr bool raw = std::is_same_v<T, bf16> && std::is_same_v<F, tile::Same>;
  const auto row = [&](int64_t i, int64_t j) {
    if (i >= view.rows) return VF{};
    return f(Row{i}, Column{j}, load_lanes(data + i * view.stride, j, view.columns));
  };
  if constexpr (Op::exact) {
    if constexpr (Op::has_plain) {
      for (int64_t i = 0; i < op.rows; ++i) {
        float* to = op.plain + i * op.stride;
        for (int64_t j = 0; j < op.columns; j += kLanes) put_floats(to + j, row(i, j));
      }
      turn(op);
    } else {
      fill_turned(op, row);
    }
  } else {
    if constexpr (Op::has_plain || Op::has_left || Op::has_down) {
      const bool whole = view.columns == op.columns && view.columns % (2 * kLanes) == 0;
      for (int64_t i = 0; i < op.rows; i += 2) {
        if constexpr (raw && !Op::has_plain) {
          if (whole && i + 1 < view.rows) {
            copy_rows(op, i, {data + i * view.stride, data + (i + 1) * view.stride});
            continue;
          }
        }
        for (int64_t j = 0; j < op.columns; j += kVectorColumns) {
          put_rows(op, i, j, {row(i, j), row(i, j + kLanes)},
                   {row(i + 1, j), row(i + 1, j + kLanes)});
        }
      }
    }
    if constexpr (Op::has_turned) {
      fill_turned(op, [&](int64_t i, int64_t w) {
        if (i >= view.rows) return VF{};
        if constexpr (raw) {
          return load_pairs(data + i * view.stride, 2 * w, view.columns);
        } else {
          return PairWords::of_columns(row(i, 2 * w), row(i, 2 * w + kLanes));
        }
      });
    }
    if constexpr (Op::has_risen) fill_risen(op);
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
