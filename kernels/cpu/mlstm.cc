#include "kernels/cpu/mlstm.h"

#include "kernels/cpu/any.h"
#include "kernels/cpu/softplus.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

WEFT_INLINE float exp_of(float x) {
  float lane[kLanes];
  store(lane, exp(splat(x)));
  return lane[0];
}

void gates_forward(const MlstmDocument& a, float* log_decay, float* m) {
  each_vector(a.heads, [&](int64_t h, auto n) {
    VF now = a.entering == nullptr ? VF{} : load(a.entering + h, n);
    for (int64_t t = a.begin; t < a.end; ++t) {
      const VF l = -softplus(-load(row<float>(a.f, t) + h, n));
      now = max(l + now, load(row<float>(a.i, t) + h, n));
      store(log_decay + t * a.heads + h, l, n);
      store(m + t * a.heads + h, now, n);
    }
  });
}

// The gradient of m goes to whichever of its two candidates was larger.
void gates_backward(const MlstmDocument& a, const MlstmDocumentBack& b) {
  each_vector(a.heads, [&](int64_t h, auto n) {
    VF dm = b.d_leaving == nullptr ? VF{} : load(b.d_leaving + h, n);
    for (int64_t t = a.end - 1; t >= a.begin; --t) {
      const int64_t at = t * a.heads + h;
      dm += load(b.dm + at, n);
      const VF start = a.entering == nullptr ? VF{} : load(a.entering + h, n);
      const VF before = t > a.begin ? load(b.m + at - a.heads, n) : start;
      const VI kept = load(b.log_decay + at, n) + before > load(row<float>(a.i, t) + h, n);
      const VF through = select(kept, dm, splat(0.0f));
      float* di = row<float>(b.di, t) + h;
      store(di, load(di, n) + (dm - through), n);
      const VF dl = load(b.d_log_decay + at, n) + through;
      store(row<float>(b.df, t) + h, dl * sigmoid(-load(row<float>(a.f, t) + h, n)), n);
      dm = through;
    }
    if (b.d_entering != nullptr) store(b.d_entering + h, dm, n);
  });
}

void keys_forward(const MlstmKeyRows& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const float gate = exp_of(row<float>(a.i, r)[h]);
      each_vector(a.width, [&](int64_t j, auto n) {
        const int64_t i = h * a.width + j;
        store_any(a.keys, r, i, load_any(a.k, r, i, n) * gate, n);
      });
    }
  }
}

void keys_backward(const MlstmKeyRows& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const float gate = exp_of(row<float>(a.i, r)[h]);
      VF along{};
      each_vector(a.width, [&](int64_t j, auto n) {
        const int64_t i = h * a.width + j;
        const VF d = load_any(a.d_keys, r, i, n);
        along += d * load_any(a.k, r, i, n);
        store_any(a.dk, r, i, d * gate, n);
      });
      row<float>(a.di, r)[h] = sum(along);
    }
  }
}

// The denominator of a token and head, and its parts.
struct Denominator {
  float value, linear, stabiliser;  // max(|linear|, 1) + stabiliser
};
WEFT_INLINE Denominator denominator(const MlstmReadRows& a, int64_t r, int64_t h) {
  const float linear = row<float>(a.wide, r)[h * (a.width + 1) + a.width];
  const float size = linear < 0 ? -linear : linear;
  const float stabiliser = a.epsilon * exp_of(row<float>(a.m, r)[h]);
  return {(size > 1.0f ? size : 1.0f) + stabiliser, linear, stabiliser};
}

void read_forward(const MlstmReadRows& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const float inverse = 1.0f / denominator(a, r, h).value;
      const float* from = row<float>(a.wide, r) + h * (a.width + 1);
      each_vector(a.width, [&](int64_t j, auto n) {
        store_any(a.out, r, h * a.width + j, load(from + j, n) * inverse, n);
      });
    }
  }
}

void read_backward(const MlstmReadRows& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const Denominator d = denominator(a, r, h);
      const float inverse = 1.0f / d.value;
      const float* from = row<float>(a.wide, r) + h * (a.width + 1);
      float* to = row<float>(a.d_wide, r) + h * (a.width + 1);
      VF along{};
      each_vector(a.width, [&](int64_t j, auto n) {
        const VF d_out = load_any(a.d_out, r, h * a.width + j, n);
        along += d_out * load(from + j, n);
        store(to + j, d_out * inverse, n);
      });
      const float d_value = -sum(along) * inverse * inverse;
      const bool linear = d.linear > 1.0f || d.linear < -1.0f;
      to[a.width] = linear ? (d.linear > 0 ? d_value : -d_value) : 0.0f;
      row<float>(a.dm, r)[h] = d_value * d.stabiliser;
    }
  }
}

void center(const ConstRows& x, const Rows& y, int64_t heads, int64_t width, Box box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      const float total =
          sum_over(width, [&](int64_t j, auto n) { return load_any(x, r, h * width + j, n); });
      const float mean = total / static_cast<float>(width);
      each_vector(width, [&](int64_t j, auto n) {
        const int64_t i = h * width + j;
        store_any(y, r, i, load_any(x, r, i, n) - mean, n);
      });
    }
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const MlstmTable& mlstm_table(ThisIsa) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr MlstmTable table{isa::gates_forward, isa::gates_backward, isa::keys_forward,
                                    isa::keys_backward, isa::read_forward,   isa::read_backward,
                                    isa::center};
  return table;
}

}  // namespace weft::kernels
