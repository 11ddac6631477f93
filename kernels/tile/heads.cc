#include "kernels/tile/heads.h"

#include <algorithm>

#include "core/host_access.h"
#include "kernels/checks.h"

namespace weft::kernels::tile {
namespace {

template <class To, class From>
To head_view(const From& x, const Tokens& tokens, int64_t head, int64_t width) {
  if (nothing_in(x)) return {};
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
  if (nothing_in(x)) return {};
  return {host<float>(x) + tokens.begin * x.row_stride + head, x.row_stride};
}
OutVector column_of(const View& x, const Tokens& tokens, int64_t head) {
  if (nothing_in(x)) return {};
  return {host<float>(x) + tokens.begin * x.row_stride + head, x.row_stride};
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
