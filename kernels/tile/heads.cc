#include "kernels/tile/heads.h"

#include <algorithm>

#include "core/host_access.h"

namespace weft::kernels::tile {
namespace {

template <class To, class From>
To head_view(const From& x, const Tokens& tokens, int64_t head, int64_t width) {
  if (absent(x)) return {};
  const auto rows = x.row_range(tokens.begin, tokens.count).columns(head * width, width);
  return {rows.data, rows.row_stride, tokens.count, width, rows.dtype};
}

template <class T>
void sum_group_rows(const ConstView& from, const View& to, int64_t group, int64_t width,
                    const Tokens& tokens) {
  const int64_t heads = to.width() / width;
  for (int64_t t = tokens.begin; t < tokens.begin + tokens.count; ++t) {
    const float* in = host<float>(from) + t * from.row_stride;
    T* out = host<T>(to) + t * to.row_stride;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t c = 0; c < width; ++c) {
        float sum = in[h * group * width + c];
        for (int64_t g = 1; g < group; ++g) sum += in[(h * group + g) * width + c];
        if constexpr (std::is_same_v<T, float>)
          out[h * width + c] = sum;
        else
          out[h * width + c] = to_bf16(sum);
      }
    }
  }
}

}  // namespace

In head_of(const ConstView& x, const Tokens& tokens, int64_t head, int64_t width) {
  return head_view<In>(x, tokens, head, width);
}
Out head_of(const View& x, const Tokens& tokens, int64_t head, int64_t width) {
  return head_view<Out>(x, tokens, head, width);
}
InVector column_of(const ConstView& x, const Tokens& tokens, int64_t head) {
  if (absent(x)) return {};
  return {host<float>(x) + tokens.begin * x.row_stride + head, x.row_stride};
}
OutVector column_of(const View& x, const Tokens& tokens, int64_t head) {
  if (absent(x)) return {};
  return {host<float>(x) + tokens.begin * x.row_stride + head, x.row_stride};
}

void check_matrix(const char* kernel, const char* name, const ConstView& x, int64_t rows,
                  int64_t width, DType type) {
  WEFT_CHECK(x.rows() == rows && x.width() == width, "{}: {} is {}, expected [{}, {}]", kernel,
             name, x.shape, rows, width);
  WEFT_CHECK(x.dtype == type || x.dtype == DType::kF32, "{}: {} is {}, expected {} or f32", kernel,
             name, name_of(x.dtype), name_of(type));
}

void check_heads(const char* kernel, const HeadShapes& in) {
  WEFT_CHECK(in.kv_heads > 0 && in.heads > 0 && in.heads % in.kv_heads == 0,
             "{}: {} query heads cannot share {} key and value heads evenly", kernel, in.heads,
             in.kv_heads);
  WEFT_CHECK(in.key > 0 && in.value > 0, "{}: head widths {} and {}", kernel, in.key, in.value);
  WEFT_CHECK(in.q.dtype == DType::kF32 || in.q.dtype == DType::kBF16, "{}: q is {}", kernel,
             name_of(in.q.dtype));
  WEFT_CHECK(in.k.dtype == in.q.dtype && in.v.dtype == in.q.dtype, "{}: q, k, v are {}, {}, {}",
             kernel, name_of(in.q.dtype), name_of(in.k.dtype), name_of(in.v.dtype));
  const int64_t tokens = in.q.rows(), keys = in.keys < 0 ? tokens : in.keys;
  check_matrix(kernel, "q", in.q, tokens, in.heads * in.key, in.q.dtype);
  check_matrix(kernel, "k", in.k, keys, in.kv_heads * in.key, in.q.dtype);
  check_matrix(kernel, "v", in.v, keys, in.kv_heads * in.value, in.q.dtype);
  WEFT_CHECK(!in.documents.empty() && in.documents.front() == 0 && in.documents.back() == tokens,
             "{}: document offsets must go from 0 to {} tokens", kernel, tokens);
  WEFT_CHECK(std::is_sorted(in.documents.begin(), in.documents.end()),
             "{}: document offsets must not fall", kernel);
}

void sum_groups(Exec& exec, ConstView from, View to, int64_t group, int64_t width) {
  constexpr int64_t kRows = 64;
  const int64_t rows = to.rows();
  exec.threads.run((rows + kRows - 1) / kRows, [&](int64_t block) {
    const Tokens tokens{block * kRows, std::min(kRows, rows - block * kRows)};
    if (to.dtype == DType::kF32)
      sum_group_rows<float>(from, to, group, width, tokens);
    else
      sum_group_rows<bf16>(from, to, group, width, tokens);
  });
}

}  // namespace weft::kernels::tile
