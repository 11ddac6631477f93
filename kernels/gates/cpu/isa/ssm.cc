#include "kernels/gates/cpu/isa/ssm.h"

#include "kernels/cpu/isa/any.h"
#include "kernels/cpu/isa/softplus.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

WEFT_INLINE ConstRows readable(const Rows& x) { return {x.data, x.stride, x.dtype}; }

void step_forward(const TimeStepRows& a, const Rows& dt, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    each_vector(a.width, [&](int64_t i, auto n) {
      store(row<float>(dt, r) + i, softplus(load_any(a.z, r, i, n) + load(a.bias + i, n)), n);
    });
  }
}

void step_backward(const TimeStepRows& a, const ConstRows& d_dt, const Rows& dz, Box box,
                   float* d_bias) {
  each_vector(a.width, [&](int64_t i, auto n) {
    const VF bias = load(a.bias + i, n);
    VF sum{};
    for (int64_t r = box.begin; r < box.end; ++r) {
      const VF d = load(row<float>(d_dt, r) + i, n) * sigmoid(load_any(a.z, r, i, n) + bias);
      sum += d;
      store_any(dz, r, i, d, n);
    }
    store(d_bias + i, sum, n);
  });
}

void heads_forward(const HeadStepRows& a, const Rows& v, const Rows& g, int64_t begin,
                   int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* dt = row<float>(a.dt, r);
    each_vector(a.heads, [&](int64_t h, auto n) {
      store(row<float>(g, r) + h, -load(dt + h, n) * exp(load(a.a_log + h, n)), n);
    });
    for (int64_t h = 0; h < a.heads; ++h) {
      each_vector(a.width, [&](int64_t j, auto n) {
        const int64_t i = h * a.width + j;
        store_any(v, r, i, load_any(a.x, r, i, n) * dt[h], n);
      });
    }
  }
}

void add_skip(const HeadStepRows& a, const Rows& y, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      each_vector(a.width, [&](int64_t j, auto n) {
        const int64_t i = h * a.width + j;
        store_any(y, r, i, load_any(readable(y), r, i, n) + load_any(a.x, r, i, n) * a.skip[h], n);
      });
    }
  }
}

// dx = dt dv + skip dy,   d dt = dv . x - e^{a_log} dg,   d a_log = dg g,   d skip = dy . x
void heads_backward(const HeadStepRows& a, const HeadStepBackRows& b, int64_t begin, int64_t end) {
  for (int64_t h = 0; h < a.heads; ++h) b.d_a_log[h] = b.d_skip[h] = 0.0f;
  for (int64_t r = begin; r < end; ++r) {
    const float* dt = row<float>(a.dt, r);
    float* d_dt = row<float>(b.d_dt, r);
    for (int64_t h = 0; h < a.heads; ++h) {
      VF along_v{}, along_y{};
      each_vector(a.width, [&](int64_t j, auto n) {
        const int64_t i = h * a.width + j;
        const VF x = load_any(a.x, r, i, n), dv = load_any(b.dv, r, i, n);
        const VF dy = load_any(b.dy, r, i, n);
        along_v += dv * x, along_y += dy * x;
        store_any(b.dx, r, i, dv * dt[h] + dy * a.skip[h], n);
      });
      d_dt[h] = sum(along_v), b.d_skip[h] += sum(along_y);
    }
    each_vector(a.heads, [&](int64_t h, auto n) {
      const VF through = -load(row<float>(b.dg, r) + h, n) * exp(load(a.a_log + h, n));
      store(b.d_a_log + h, load(b.d_a_log + h, n) + through * load(dt + h, n), n);
      store(d_dt + h, load(d_dt + h, n) + through, n);
    });
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const SsmTable& table(ThisIsa, const SsmTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr SsmTable table{isa::step_forward, isa::step_backward, isa::heads_forward,
                                  isa::add_skip, isa::heads_backward};
  return table;
}

}  // namespace weft::kernels
