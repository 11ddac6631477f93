#include "kernels/cpu/router.h"

#include "kernels/cpu/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

// The k best of x, best first, ties to the lower index; `best` holds their values. By logits even
// where the text says by probabilities: the order is the same, but rounding cannot make two of them
// equal. Always k different indices, whatever x holds.
void choose(const float* x, int64_t experts, int64_t k, int32_t* index, float* best) {
  int64_t held = 0;
  for (int64_t e = 0; e < experts; ++e) {
    if (held == k && !(x[e] > best[k - 1])) continue;
    int64_t at = held < k ? held++ : k - 1;
    for (; at > 0 && x[e] > best[at - 1]; --at) {
      best[at] = best[at - 1];
      index[at] = index[at - 1];
    }
    best[at] = x[e];
    index[at] = static_cast<int32_t>(e);
  }
}

bool finite(const float* x, int64_t count) {
  VI bad = {};
  each_vector(count, [&](int64_t i, auto n) {
    const VF v = load(x + i, n);
    bad |= !(abs(v) < __builtin_inff());
  });
  int32_t any = 0;
  for (int i = 0; i < kLanes; ++i) any |= bad[i];
  return any == 0;
}

// `weight` holds the chosen logits on entry and the weights on return.
void route_row(const RouteForward& a, int64_t r) {
  const float* x = row<float>(a.logits, r);
  float* p = a.probabilities + r * a.experts;
  float* weight = a.weight + r * a.active;
  choose(x, a.experts, a.active, a.index + r * a.active, weight);
  const float shift = weight[0];
  const float total = sum_over(a.experts, [&](int64_t i, auto n) {
    const VF e = kept(exp(load(x + i, n) - shift), n);
    store(p + i, e, n);
    return e;
  });
  const float inverse = 1.0f / total;
  each_vector(a.experts, [&](int64_t i, auto n) { store(p + i, load(p + i, n) * inverse, n); });
  a.log_sum_exp[r] = shift + log(splat(total))[0];

  float chosen = 0.0f;
  for (int64_t j = 0; j < a.active; ++j) {
    weight[j] = p[a.index[r * a.active + j]];
    chosen += weight[j];
  }
  if (a.share == ShareOf::kAll) return;
  for (int64_t j = 0; j < a.active; ++j) weight[j] /= chosen;
}

int64_t forward(const RouteForward& a, int64_t begin, int64_t end) {
  int64_t first_bad = -1;
  for (int64_t r = begin; r < end; ++r) {
    if (first_bad < 0 && !finite(row<float>(a.logits, r), a.experts)) first_bad = r;
    route_row(a, r);
  }
  return first_bad;
}

// With d the gradient of the weights: over all, dl_j = p_j (d_j - sum_S d p), d_j = 0 outside of S;
// over the chosen, dl_j = w_j (d_j - sum_S d w) in S and 0 outside.
void backward_row(const RouteBackward& a, int64_t r) {
  const float* p = a.probabilities + r * a.experts;
  const float* weight = a.weight + r * a.active;
  const float* d_weight = a.d_weight + r * a.active;
  const int32_t* index = a.index + r * a.active;
  float* d = row<float>(a.d_logits, r);

  float product = 0.0f, balance = 0.0f;
  for (int64_t j = 0; j < a.active; ++j) product += d_weight[j] * weight[j];
  if (a.fraction != nullptr) {
    balance = sum_over(a.experts,
                       [&](int64_t i, auto n) { return load(p + i, n) * load(a.fraction + i, n); });
  }
  // The factor of p that all experts share, and the balance loss's own one.
  const float common = a.z_scale * a.log_sum_exp[r] - a.aux_scale * balance -
                       (a.share == ShareOf::kAll ? product : 0.0f);
  each_vector(a.experts, [&](int64_t i, auto n) {
    VF factor = splat(common);
    if (a.fraction != nullptr) factor += a.aux_scale * load(a.fraction + i, n);
    store(d + i, load(p + i, n) * factor, n);
  });
  const float back = a.share == ShareOf::kAll ? 0.0f : product;
  for (int64_t j = 0; j < a.active; ++j) d[index[j]] += weight[j] * (d_weight[j] - back);
}

void backward(const RouteBackward& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) backward_row(a, r);
}

template <class X, class Y>
void combine_rows(const CombineArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int32_t* from = a.row + r * a.active;
    Y* y = row<Y>(a.y, r);
    each_vector(a.width, [&](int64_t i, auto n) {
      VF sum = a.accumulate ? load(y + i, n) : VF{};
      for (int64_t j = 0; j < a.active; ++j) sum += load(row<X>(a.rows, from[j]) + i, n);
      store(y + i, sum, n);
    });
  }
}
void combine(const CombineArgs& a, int64_t begin, int64_t end) {
  with_types(a.rows.dtype, a.y.dtype,
             [&](auto x, auto y) { combine_rows<decltype(x), decltype(y)>(a, begin, end); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const RouterTable& router_table(ThisIsa) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr RouterTable table{here::forward, here::backward, here::combine};
  return table;
}

}  // namespace weft::kernels
