#pragma once

#include <span>

#include "core/memory/exec.h"
#include "kernels/tile/view.h"

// From the tensors of a kernel's contract to the views of one head. Tensors are [tokens, heads *
// width].
namespace weft::kernels::tile {

// Not given: a default view has no bytes (and the shape of a scalar).
template <class Byte>
bool absent(const BasicView<Byte>& x) {
  return x.data == nullptr || x.empty();
}

struct Tokens {
  int64_t begin, count;
};

In head_of(const ConstView& x, const Tokens& tokens, int64_t head, int64_t width);
Out head_of(const View& x, const Tokens& tokens, int64_t head, int64_t width);
// Column `head` of f32 [tokens, heads].
InVector column_of(const ConstView& x, const Tokens& tokens, int64_t head);
OutVector column_of(const View& x, const Tokens& tokens, int64_t head);

// What the kernels over heads have in common, checked: q, k, v, documents and the two head counts.
struct HeadShapes {
  ConstView q, k, v;
  std::span<const int32_t> documents;
  int64_t heads, kv_heads, key, value;
  int64_t keys = -1;  // rows of k and v; -1: as many as of q
};
void check_heads(const char* kernel, const HeadShapes& in);
// x is f32 or of type `type`, and [rows, width].
void check_matrix(const char* kernel, const char* name, const ConstView& x, int64_t rows,
                  int64_t width, DType type);

// to [tokens, kv_heads * width] = sum over each group of query heads of from [tokens, heads *
// width], f32, head after head.
void sum_groups(Exec& exec, ConstView from, View to, int64_t group, int64_t width);

}  // namespace weft::kernels::tile
