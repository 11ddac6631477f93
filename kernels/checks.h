#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "core/memory/tensor.h"

// Checks of arguments, the same for every device.
namespace weft::kernels {

template <class V>
bool given(const V& view) {
  return view.data != nullptr;
}
template <class V>
bool nothing_in(const V& view) {
  return view.data == nullptr || view.empty();
}

// x must be f32 or bf16.
template <class V>
void check_real(const V& x, std::string_view name) {
  WEFT_CHECK(x.dtype == DType::kF32 || x.dtype == DType::kBF16, "{} is {}, not f32 or bf16", name,
             name_of(x.dtype));
}

template <class V>
void check_matrix(const V& x, int64_t rows, int64_t width, std::string_view name) {
  check_real(x, name);
  WEFT_CHECK(x.rows() == rows && x.width() == width, "{} is {} x {}, expected {} x {}", name,
             x.rows(), x.width(), rows, width);
}

template <class V>
void check_f32(const V& x, std::string_view name) {
  WEFT_CHECK(x.dtype == DType::kF32, "{} is {}, not f32", name, name_of(x.dtype));
}
template <class V>
void check_f32_matrix(const V& x, int64_t rows, int64_t width, std::string_view name) {
  check_matrix(x, rows, width, name);
  check_f32(x, name);
}

// Matrices that are walked together element by element: of one shape, or contiguous and of one
// size.
template <class First, class... Others>
void check_alike(std::string_view name, const First& first, const Others&... others) {
  (check_real(first, name), ..., check_real(others, name));
  WEFT_CHECK(((others.shape.elements() == first.shape.elements()) && ...),
             "{}: the matrices differ in size, the first is {}", name, first.shape);
  if (first.contiguous() && (others.contiguous() && ...)) return;
  WEFT_CHECK(((others.rows() == first.rows() && others.width() == first.width()) && ...),
             "{}: the matrices differ in shape, the first is {}", name, first.shape);
}

// x holds exactly `count` contiguous elements of type T.
template <class T, class V>
void check_vector(const V& x, int64_t count, std::string_view name) {
  WEFT_CHECK(x.shape.elements() == count && x.contiguous() && x.dtype == dtype_of<T>(),
             "{} is {} {}, expected {} contiguous {}", name, name_of(x.dtype), x.shape, count,
             name_of(dtype_of<T>()));
}

inline void check_heads(int64_t channels, int64_t heads, std::string_view name) {
  WEFT_CHECK(heads > 0 && channels % heads == 0, "{}: {} channels, {} heads", name, channels,
             heads);
}

// Offsets of documents: n + 1 of them.
inline void check_documents(std::span<const int32_t> documents, int64_t tokens,
                            std::string_view name) {
  WEFT_CHECK(!documents.empty() && documents.front() == 0 && documents.back() == tokens &&
                 std::is_sorted(documents.begin(), documents.end()),
             "{}: document offsets must rise from 0 to {} tokens", name, tokens);
}

// x holds exactly `count` f32 numbers, contiguously: a vector, or a matrix of any shape.
template <class V>
void check_numbers(const V& x, int64_t count, std::string_view name) {
  WEFT_CHECK(x.shape.elements() == count && x.contiguous() && x.dtype == DType::kF32,
             "{} is {} {}, expected {} contiguous f32 numbers", name, name_of(x.dtype), x.shape,
             count);
}
// As above, where x is given.
template <class V>
void check_optional_numbers(const V& x, int64_t count, std::string_view name) {
  if (given(x)) check_numbers(x, count, name);
}

}  // namespace weft::kernels
