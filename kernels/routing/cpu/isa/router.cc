#include "kernels/routing/cpu/isa/router.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

// The k best of score(begin) .. score(end - 1), best first, ties to the lower index, added to the
// `held` that are there; `best` holds their scores. Always k different indices, whatever the
// scores.
template <class Score>
int64_t choose(Score score, int64_t begin, int64_t end, int64_t k, int32_t* index, float* best,
               int64_t held = 0) {
  for (int64_t e = begin; e < end; ++e) {
    const float s = score(e);
    if (held == k && !(s > best[k - 1])) continue;
    int64_t at = held < k ? held++ : k - 1;
    for (; at > 0 && s > best[at - 1]; --at) {
      best[at] = best[at - 1];
      index[at] = index[at - 1];
    }
    best[at] = s;
    index[at] = static_cast<int32_t>(e);
  }
  return held;
}

// The last of the k chosen, whose score is `last`, against the best other of begin .. end - 1; less
// than `margin` or `margin`.
template <class Score>
float margin_to_others(Score score, int64_t begin, int64_t end, int64_t k, const int32_t* index,
                       float last, float margin) {
  for (int64_t e = begin; e < end; ++e) {
    if (!(last - score(e) < margin)) continue;
    bool chosen = false;
    for (int64_t j = 0; j < k; ++j) chosen |= index[j] == e;
    if (!chosen) margin = last - score(e);
  }
  return margin;
}

// Sum of the two largest scores (of a group of one: that one).
template <class Score>
float best_two(Score score, int64_t begin, int64_t end) {
  float first = -__builtin_inff(), second = first;
  for (int64_t e = begin; e < end; ++e) {
    const float s = score(e);
    if (s > first) {
      second = first;
      first = s;
    } else if (s > second) {
      second = s;
    }
  }
  return end - begin == 1 ? first : first + second;
}

// The k best, from the groups that a token may choose from. `group_score` decides on groups:
// its order among experts may be that of `score`, but sums of it are not. `margin` (may be absent):
// see Routed.
template <class GroupScore, class Score>
void choose_in_groups(const RouteRule& rule, GroupScore group_score, Score score, int32_t* index,
                      float* best, float* margin) {
  const int64_t size = rule.experts / rule.groups;
  int32_t group[kMostGroups];
  float value[kMostGroups];
  bool open[kMostGroups] = {rule.groups == 1};
  float least = __builtin_inff();
  if (rule.groups > 1) {
    const auto of_group = [&](int64_t g) {
      return best_two(group_score, g * size, (g + 1) * size);
    };
    const int64_t kept = rule.kept_groups;
    choose(of_group, 0, rule.groups, kept, group, value);
    if (margin) {
      least = margin_to_others(of_group, 0, rule.groups, kept, group, value[kept - 1], least);
    }
    for (int64_t g = 0; g < kept; ++g) open[group[g]] = true;
  }
  int64_t held = 0;
  for (int64_t g = 0; g < rule.groups; ++g) {
    if (open[g]) held = choose(score, g * size, (g + 1) * size, rule.active, index, best, held);
  }
  if (margin == nullptr) return;
  const float last = best[rule.active - 1];
  for (int64_t g = 0; g < rule.groups; ++g) {
    if (!open[g]) continue;
    least = margin_to_others(score, g * size, (g + 1) * size, rule.active, index, last, least);
  }
  *margin = least;
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

float largest(const float* x, int64_t count) {
  VF most = splat(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) most = max(load(x + i), most);
  float out = max_lane(most);
  for (; i < count; ++i) out = x[i] > out ? x[i] : out;
  return out;
}

// p *= 1 / total
void normalize(float* p, int64_t count, float total) {
  const float inverse = 1.0f / total;
  each_vector(count, [&](int64_t i, auto n) { store(p + i, load(p + i, n) * inverse, n); });
}

float entropy(const float* p, int64_t count) {
  constexpr float kTiny = 1e-30f;  // p log p is 0 there, and log(0) is not needed for it
  return -sum_over(count, [&](int64_t i, auto n) {
    const VF v = load(p + i, n);
    return v * log(max(v, splat(kTiny)));
  });
}

// weight = scale * score of the chosen, or its share of theirs. `nothing` keeps 0 / 0 away.
void weigh(const RouteRule& rule, const float* score, const int32_t* index, float nothing,
           float* weight) {
  float chosen = nothing;
  for (int64_t j = 0; j < rule.active; ++j) chosen += weight[j] = score[index[j]];
  const float share = rule.share == ShareOf::kAll ? 1.0f : chosen;
  for (int64_t j = 0; j < rule.active; ++j) weight[j] = rule.scale * (weight[j] / share);
}

// Stores exp(x - shift) in e and returns the sum.
float exponentials(const float* x, int64_t count, float shift, float* e) {
  return sum_over(count, [&](int64_t i, auto n) {
    const VF v = kept(exp(load(x + i, n) - shift), n);
    store(e + i, v, n);
    return v;
  });
}

// Chosen by logits even where the text says by probabilities: the order is the same, but rounding
// cannot make two of them equal.
void softmax_row(const RouteForward& a, int64_t r) {
  const RouteRule& rule = a.rule;
  const float* x = row<float>(a.logits, r);
  float* p = a.probabilities + r * rule.experts;
  float* weight = a.weight + r * rule.active;
  int32_t* index = a.index + r * rule.active;
  const float shift = largest(x, rule.experts);
  const float total = exponentials(x, rule.experts, shift, p);
  normalize(p, rule.experts, total);
  a.log_sum_exp[r] = shift + log(splat(total))[0];
  if (!a.index_given) {
    const float* group_score = a.by_probability ? p : x;
    choose_in_groups(
        rule, [=](int64_t e) { return group_score[e]; }, [=](int64_t e) { return x[e]; }, index,
        weight, a.margin ? a.margin + r : nullptr);
  }
  weigh(rule, p, index, 0.0f, weight);
}

// p holds the exponentials for the log-sum-exp, then the sigmoids, then their shares.
void sigmoid_row(const RouteForward& a, int64_t r) {
  const RouteRule& rule = a.rule;
  const float* x = row<float>(a.logits, r);
  float* p = a.probabilities + r * rule.experts;
  float* weight = a.weight + r * rule.active;
  int32_t* index = a.index + r * rule.active;
  const float shift = largest(x, rule.experts);
  a.log_sum_exp[r] = shift + log(splat(exponentials(x, rule.experts, shift, p)))[0];
  const float total = sum_over(rule.experts, [&](int64_t i, auto n) {
    const VF s = kept(sigmoid(load(x + i, n)), n);
    store(p + i, s, n);
    return s;
  });
  if (!a.index_given) {
    const auto score = [=, bias = a.bias](int64_t e) { return bias ? p[e] + bias[e] : p[e]; };
    choose_in_groups(rule, score, score, index, weight, a.margin ? a.margin + r : nullptr);
  }
  weigh(rule, p, index, 1e-20f, weight);
  normalize(p, rule.experts, total);
}

template <auto Row>
int64_t forward(const RouteForward& a, int64_t begin, int64_t end) {
  const int64_t experts = a.rule.experts;
  int64_t first_bad = -1;
  for (int64_t r = begin; r < end; ++r) {
    if (first_bad < 0 && !finite(row<float>(a.logits, r), experts)) first_bad = r;
    if (a.margin) a.margin[r] = __builtin_inff();
    Row(a, r);
    if (a.entropy) a.entropy[r] = entropy(a.probabilities + r * experts, experts);
  }
  return first_bad;
}

// The numbers of one token that backward reads.
struct BackwardRow {
  const float *p, *weight, *d_weight, *fraction;
  const int32_t* index;
  float* d;
  float product;  // sum over the chosen of d_weight * weight
  float balance;  // sum over all of p * fraction
};
BackwardRow backward_row(const RouteBackward& a, int64_t r) {
  const int64_t experts = a.rule.experts, active = a.rule.active;
  BackwardRow t{a.probabilities + r * experts,
                a.weight + r * active,
                a.d_weight + r * active,
                a.fraction ? a.fraction + (a.first + r) / a.run * experts : nullptr,
                a.index + r * active,
                row<float>(a.d_logits, r),
                0.0f,
                0.0f};
  for (int64_t j = 0; j < active; ++j) t.product += t.d_weight[j] * t.weight[j];
  if (t.fraction) {
    t.balance = sum_over(
        experts, [&](int64_t i, auto n) { return load(t.p + i, n) * load(t.fraction + i, n); });
  }
  return t;
}

// With d the gradient of the weights: over all, dl_j = p_j (d_j - sum_S d p), d_j = 0 outside of S;
// over the chosen, dl_j = w_j (d_j - sum_S d w) in S and 0 outside.
void softmax_row_backward(const RouteBackward& a, int64_t r) {
  const BackwardRow t = backward_row(a, r);
  const bool all = a.rule.share == ShareOf::kAll;
  // The factor of p that all experts share, and the balance loss's own one.
  const float common =
      a.z_scale * a.log_sum_exp[r] - a.aux_scale * t.balance - (all ? t.product : 0.0f);
  each_vector(a.rule.experts, [&](int64_t i, auto n) {
    VF factor = splat(common);
    if (t.fraction) factor += a.aux_scale * load(t.fraction + i, n);
    store(t.d + i, load(t.p + i, n) * factor, n);
  });
  const float back = all ? 0.0f : t.product;
  for (int64_t j = 0; j < a.rule.active; ++j) {
    t.d[t.index[j]] += t.weight[j] * (t.d_weight[j] - back);
  }
}

// With s = sigmoid(l), c the scale and W the sum of s over the chosen: ds_j = c d_j, or
// (c d_j - sum_S d w) / W; dl_j = ds_j s_j (1 - s_j). The z loss is that of the logits' softmax,
// the balance loss's p_j = s_j / sum s gives dl_j = p_j (1 - s_j) (f_j - sum_e f_e p_e).
void sigmoid_row_backward(const RouteBackward& a, int64_t r) {
  const RouteRule& rule = a.rule;
  const BackwardRow t = backward_row(a, r);
  const float* x = row<float>(a.logits, r);
  const float lse = a.log_sum_exp[r];
  each_vector(rule.experts, [&](int64_t i, auto n) {
    const VF l = load(x + i, n);
    VF d = a.z_scale * lse * exp(l - lse);
    if (t.fraction) {
      const VF push = load(t.fraction + i, n) - t.balance;
      d += a.aux_scale * load(t.p + i, n) * sigmoid(-l) * push;
    }
    store(t.d + i, d, n);
  });
  float chosen = 1e-20f;
  for (int64_t j = 0; j < rule.active; ++j) chosen += sigmoid(splat(x[t.index[j]]))[0];
  for (int64_t j = 0; j < rule.active; ++j) {
    const VF l = splat(x[t.index[j]]);
    float ds = rule.scale * t.d_weight[j];
    if (rule.share == ShareOf::kChosen) ds = (ds - t.product) / chosen;
    t.d[t.index[j]] += ds * (sigmoid(l) * sigmoid(-l))[0];
  }
}

template <auto Row>
void backward(const RouteBackward& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) Row(a, r);
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const RouterTable& table(ThisIsa, const RouterTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr RouterTable table{
      here::forward<here::softmax_row>, here::forward<here::sigmoid_row>,
      here::backward<here::softmax_row_backward>, here::backward<here::sigmoid_row_backward>};
  return table;
}

}  // namespace weft::kernels
