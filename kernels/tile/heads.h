#pragma once

#include "core/memory/exec.h"
#include "kernels/tile/view.h"

// From the tensors of a kernel's contract to the views of one head. Tensors are [tokens, heads *
// width].
namespace weft::kernels::tile {

struct Tokens {
  int64_t begin, count;
};

In head_of(const ConstView& x, const Tokens& tokens, int64_t head, int64_t width);
Out head_of(const View& x, const Tokens& tokens, int64_t head, int64_t width);
// Column `head` of f32 [tokens, heads].
InVector column_of(const ConstView& x, const Tokens& tokens, int64_t head);
OutVector column_of(const View& x, const Tokens& tokens, int64_t head);

// to [tokens, kv_heads * width] = sum over each group of query heads of from [tokens, heads *
// width], f32, head after head.
void sum_groups(Exec& exec, ConstView from, View to, int64_t group, int64_t width);

}  // namespace weft::kernels::tile
