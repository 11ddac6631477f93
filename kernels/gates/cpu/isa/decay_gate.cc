#include "kernels/gates/cpu/isa/decay_gate.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

WEFT_INLINE VF log_sigmoid(VF x) { return min(x, splat(0.0f)) - log(1.0f + exp(-abs(x))); }

// f(z) or f(z) * dg, row by row; dg absent in forward.
template <class F>
WEFT_INLINE void each_gate(const ConstRows& z, const Rows& to, const Box& box, F f) {
  with_types(z.dtype, to.dtype, [&](auto z_type, auto to_type) {
    for (int64_t r = box.begin; r < box.end; ++r) {
      const auto* from = row<decltype(z_type)>(z, r) + box.left;
      auto* out = row<decltype(to_type)>(to, r) + box.left;
      each_vector(box.right - box.left, [&](int64_t i, auto n) {
        store(out + i, f(load(from + i, n), r, box.left + i, n), n);
      });
    }
  });
}

void forward(const DecayGateRows& a, const Box& box) {
  const float factor = 1.0f / a.gate.divisor;
  if (a.gate.kind == DecayGate::Kind::kMinusExp) {
    each_gate(a.z, a.to, box, [](VF z, auto, auto, auto) { return -exp(z); });
  } else {
    each_gate(a.z, a.to, box, [&](VF z, auto, auto, auto) {
      return max(log_sigmoid(z) * factor, splat(a.gate.floor));
    });
  }
}

void backward(const DecayGateRows& a, const Box& box) {
  const float factor = 1.0f / a.gate.divisor;
  const auto dg = [&](int64_t r, int64_t i, auto n) { return load(row<float>(a.dg, r) + i, n); };
  if (a.gate.kind == DecayGate::Kind::kMinusExp) {
    each_gate(a.z, a.to, box, [&](VF z, auto r, auto i, auto n) { return -exp(z) * dg(r, i, n); });
  } else {
    each_gate(a.z, a.to, box, [&](VF z, auto r, auto i, auto n) {
      const VF slope = sigmoid(-z) * factor * dg(r, i, n);
      return select(log_sigmoid(z) * factor > a.gate.floor, slope, splat(0.0f));
    });
  }
}

// A bound that training has moved outside of [0, kHighest] counts as the nearer end.
constexpr float kHighest = 0.999f;
template <class N>
WEFT_INLINE VF lower_of(const TiedGatesRows& a, int64_t i, N n) {
  if (a.lower == nullptr) return VF{};
  return min(max(load(a.lower + i, n), splat(0.0f)), splat(kHighest));
}

void tied_forward(const TiedGatesRows& a, int64_t begin, int64_t end) {
  with_types(a.f.dtype, a.k.dtype, [&](auto f_type, auto k_type) {
    for (int64_t r = begin; r < end; ++r) {
      const auto* f = row<decltype(f_type)>(a.f, r);
      auto* k = row<decltype(k_type)>(a.k, r);
      float* g = row<float>(a.g, r);
      each_vector(a.width, [&](int64_t i, auto n) {
        const VF x = load(f + i, n), lower = lower_of(a, i, n), rest = 1.0f - lower;
        const VF bounded = log(lower + rest * sigmoid(x));
        store(g + i, select(lower > 0.0f, bounded, log_sigmoid(x)), n);
        store(k + i, rest * sigmoid(-x), n);
      });
    }
  });
}

// With s = sigmoid(f), the gradient of a is dg / a - dk; of f, (1 - lower) s (1 - s) times that; of
// the lower bound, (1 - s) times that. s / a is 1 without a lower bound, also where s underflows.
void tied_backward(const TiedGatesRows& a, int64_t begin, int64_t end, float* d_lower) {
  for (int64_t i = 0; d_lower != nullptr && i < a.width; ++i) d_lower[i] = 0;
  with_types(a.f.dtype, a.dk.dtype, a.df.dtype, [&](auto f_type, auto dk_type, auto df_type) {
    for (int64_t r = begin; r < end; ++r) {
      const auto* f = row<decltype(f_type)>(a.f, r);
      const auto* dk = row<decltype(dk_type)>(a.dk, r);
      const float* dg = row<float>(a.dg, r);
      auto* df = row<decltype(df_type)>(a.df, r);
      each_vector(a.width, [&](int64_t i, auto n) {
        const VF x = load(f + i, n), lower = lower_of(a, i, n), rest = 1.0f - lower;
        const VF s = sigmoid(x), other = sigmoid(-x), decay = lower + rest * s;
        const VF share = select(lower > 0.0f, s / decay, splat(1.0f));
        const VF d_decay = load(dg + i, n), d_key = load(dk + i, n);
        store(df + i, rest * other * (d_decay * share - d_key * s), n);
        if (d_lower != nullptr) {
          const VF more = other * (d_decay / decay - d_key);
          store(d_lower + i, load(d_lower + i, n) + more, n);
        }
      });
    }
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const DecayGateTable& table(ThisIsa, const DecayGateTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr DecayGateTable table{isa::forward, isa::backward, isa::tied_forward,
                                        isa::tied_backward};
  return table;
}

}  // namespace weft::kernels
