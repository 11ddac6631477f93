// With M0, S0, A0 entering a chunk, rows counted from 0 and states from 1 (state 0 enters):
//   M_i = b_i M0 + f_i S0 + sum_j G_ij k_j^T e_j,    S_i = p_i S0 + sum_j h_ij k_j^T e_j
//   e_i = v_i - k_i M_r(i),  r(i) the state that its mini-batch found, or A0 when that was before
// Coefficients are scalar recurrences, so that the e_i are a triangular system.
#include "kernels/cpu/momentum_scan.h"

#include "kernels/cpu/small_matrix.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

constexpr int64_t kC = kMomentumChunk;

struct Bump {
  float* at;
  float* take(int64_t count) {
    float* here = at;
    at += (count + 15) / 16 * 16;
    return here;
  }
};

// A chunk of one head.
struct Chunk {
  int64_t n, first;                    // tokens; the first one's place in the document
  float *q, *k, *e, *out;              // [n, key] twice, [n, value] twice
  float *km, *ks, *ka, *qm, *qs;       // k, q times the entering states [n, value]
  float *qk, *kk;                      // [n, n]
  float *g, *h, *b, *f, *p;            // [n + 1, n] twice, [n + 1]
  float theta[kC], keep[kC], eta[kC];  // keep: 1 - alpha
  int64_t read[kC];                    // r(i), or -1: A0
  int64_t anchor;                      // the state that leaves as A, or -1: A0
};

int64_t chunk_floats(int64_t key, int64_t value) {
  return 2 * (kC * key + 16) + 7 * (kC * value + 16) + 2 * (kC * kC + 16) +
         2 * ((kC + 1) * kC + 16) + 3 * (kC + 32);
}

void place(Bump& bump, int64_t key, int64_t value, Chunk& c) {
  c.q = bump.take(kC * key), c.k = bump.take(kC * key);
  float** const wide[] = {&c.e, &c.out, &c.km, &c.ks, &c.ka, &c.qm, &c.qs};
  for (float** at : wide) *at = bump.take(kC * value);
  c.qk = bump.take(kC * kC), c.kk = bump.take(kC * kC);
  c.g = bump.take((kC + 1) * kC), c.h = bump.take((kC + 1) * kC);
  c.b = bump.take(kC + 1), c.f = bump.take(kC + 1), c.p = bump.take(kC + 1);
}

void read_rows(const ConstRows& from, int64_t first, int64_t n, int64_t width, float* to) {
  with_types(from.dtype, [&](auto type) {
    for (int64_t i = 0; i < n; ++i) {
      const auto* x = row<decltype(type)>(from, first + i);
      each_vector(
          width, [&](int64_t j, auto part) { store(to + i * width + j, load(x + j, part), part); });
    }
  });
}
void write_rows(const float* from, int64_t first, int64_t n, int64_t width, const Rows& to) {
  with_types(to.dtype, [&](auto type) {
    for (int64_t i = 0; i < n; ++i) {
      auto* y = row<decltype(type)>(to, first + i);
      each_vector(width, [&](int64_t j, auto part) {
        store(y + j, load(from + i * width + j, part), part);
      });
    }
  });
}

void load_chunk(const MomentumTask& t, int64_t first, Chunk& c) {
  c.first = first;
  c.n = t.tokens - first < kC ? t.tokens - first : kC;
  read_rows(t.q, first, c.n, t.key, c.q);
  read_rows(t.k, first, c.n, t.key, c.k);
  read_rows(t.v, first, c.n, t.value, c.e);
  for (int64_t i = 0; i < c.n; ++i) {
    c.theta[i] = row<float>(t.theta, first + i)[0];
    c.keep[i] = t.alpha.data == nullptr ? 1.0f : 1.0f - row<float>(t.alpha, first + i)[0];
    c.eta[i] = t.eta.data == nullptr ? 0.0f : row<float>(t.eta, first + i)[0];
    const int64_t state = i - (t.before + first + i) % t.mini_batch;
    c.read[i] = state < 0 ? -1 : state;
  }
  const int64_t state = c.n - (t.before + first + c.n) % t.mini_batch;
  c.anchor = state < 0 ? -1 : state;
}

void coefficients(Chunk& c) {
  const int64_t n = c.n;
  clear(c.g, n), clear(c.h, n);
  c.b[0] = 1.0f, c.f[0] = 0.0f, c.p[0] = 1.0f;
  for (int64_t i = 0; i < n; ++i) {
    const float *g = c.g + i * n, *h = c.h + i * n;
    float *next_g = c.g + (i + 1) * n, *next_h = c.h + (i + 1) * n;
    for (int64_t j = 0; j < n; ++j) {
      next_h[j] = j == i ? c.theta[i] : c.eta[i] * h[j];
      next_g[j] = c.keep[i] * g[j] + next_h[j];
    }
    c.b[i + 1] = c.keep[i] * c.b[i];
    c.p[i + 1] = c.eta[i] * c.p[i];
    c.f[i + 1] = c.keep[i] * c.f[i] + c.p[i + 1];
  }
}

struct States {
  float *m, *s, *a;  // [key, value]
};

// Everything of a chunk that its entering states decide; c.e is v before and e after.
void solve(const MomentumTask& t, const States& at, Chunk& c) {
  const int64_t n = c.n, width = t.value;
  coefficients(c);
  float* const products[] = {c.km, c.ks, c.ka, c.qm, c.qs};
  for (float* x : products) clear(x, n * width);
  multiply(c.k, at.m, c.km, n, t.key, width);
  multiply(c.q, at.m, c.qm, n, t.key, width);
  if (t.eta.data != nullptr) {
    multiply(c.k, at.s, c.ks, n, t.key, width);
    multiply(c.q, at.s, c.qs, n, t.key, width);
  }
  if (c.read[0] < 0) multiply(c.k, at.a, c.ka, n, t.key, width);
  multiply_by_transposed(c.q, c.k, c.qk, n, n, t.key);
  multiply_by_transposed(c.k, c.k, c.kk, n, n, t.key);
  for (int64_t i = 0; i < n; ++i) {
    float* e = c.e + i * width;
    const int64_t r = c.read[i];
    if (r < 0) {
      add_scaled(-1.0f, c.ka + i * width, e, width);
      continue;
    }
    add_scaled(-c.b[r], c.km + i * width, e, width);
    add_scaled(-c.f[r], c.ks + i * width, e, width);
    for (int64_t j = 0; j < r; ++j) {
      add_scaled(-c.g[r * n + j] * c.kk[i * n + j], c.e + j * width, e, width);
    }
  }
}

void read_out(const MomentumTask& t, const Chunk& c) {
  const int64_t n = c.n, width = t.value;
  clear(c.out, n * width);
  for (int64_t i = 0; i < n; ++i) {
    float* out = c.out + i * width;
    add_scaled(t.scale * c.b[i + 1], c.qm + i * width, out, width);
    add_scaled(t.scale * c.f[i + 1], c.qs + i * width, out, width);
    for (int64_t j = 0; j <= i; ++j) {
      add_scaled(t.scale * c.g[(i + 1) * n + j] * c.qk[i * n + j], c.e + j * width, out, width);
    }
  }
}

// x = first * m + second * s + sum_j weight_j k_j^T e_j
void state_at(const MomentumTask& t, const Chunk& c, const States& at, float first, float second,
              const float* weight, float* x) {
  const int64_t size = t.key * t.value;
  clear(x, size);
  add_scaled(first, at.m, x, size);
  if (second != 0.0f) add_scaled(second, at.s, x, size);
  for (int64_t j = 0; j < c.n; ++j) {
    if (weight[j] == 0.0f) continue;
    for (int64_t i = 0; i < t.key; ++i) {
      add_scaled(weight[j] * c.k[j * t.key + i], c.e + j * t.value, x + i * t.value, t.value);
    }
  }
}

// From the states that enter a chunk to those that leave it.
void advance(const MomentumTask& t, const Chunk& c, const States& at, const States& to) {
  const int64_t n = c.n, size = t.key * t.value;
  state_at(t, c, at, c.b[n], c.f[n], c.g + n * n, to.m);
  state_at(t, c, at, 0.0f, c.p[n], c.h + n * n, to.s);
  if (c.anchor < 0) {
    move(at.a, to.a, size);
  } else if (c.anchor == n) {
    move(to.m, to.a, size);
  } else {
    state_at(t, c, at, c.b[c.anchor], c.f[c.anchor], c.g + c.anchor * n, to.a);
  }
}

void enter(const MomentumTask& t, const States& at) {
  const int64_t size = t.key * t.value;
  t.m == nullptr ? clear(at.m, size) : move(t.m, at.m, size);
  t.s == nullptr ? clear(at.s, size) : move(t.s, at.s, size);
  move(t.anchor == nullptr ? at.m : t.anchor, at.a, size);
}
States take_states(Bump& bump, int64_t size) {
  return {bump.take(size), bump.take(size), bump.take(size)};
}

int64_t forward_scratch(int64_t key, int64_t value) {
  return chunk_floats(key, value) + 6 * (key * value + 16);
}

void forward(const MomentumTask& t, const MomentumOutputs& o, float* scratch) {
  Bump bump{scratch};
  Chunk c;
  place(bump, t.key, t.value, c);
  States at = take_states(bump, t.key * t.value), to = take_states(bump, t.key * t.value);
  enter(t, at);
  for (int64_t first = 0; first < t.tokens; first += kC) {
    load_chunk(t, first, c);
    solve(t, at, c);
    read_out(t, c);
    write_rows(c.out, first, c.n, t.value, o.out);
    advance(t, c, at, to);
    const States free = at;
    at = to, to = free;
  }
  if (o.m != nullptr) move(at.m, o.m, t.key * t.value);
  if (o.s != nullptr) move(at.s, o.s, t.key * t.value);
  if (o.anchor != nullptr) move(at.a, o.anchor, t.key * t.value);
}

// What backward adds to a chunk. Gradients carry the name of what they are of.
struct Back {
  float *out, *e, *q, *k;    // [n, value] twice, [n, key] twice
  float *km, *ks, *ka;       // k times the gradients of the leaving states [n, value]
  float *oe, *ee;            // d_out e^T, d_e e^T [n, n]
  float *g, *h, *b, *f, *p;  // as in Chunk
  float theta[kC], alpha[kC], eta[kC];
};

int64_t back_floats(int64_t key, int64_t value) {
  return 5 * (kC * value + 16) + 2 * (kC * key + 16) + 2 * (kC * kC + 16) +
         2 * ((kC + 1) * kC + 16) + 3 * (kC + 32);
}

void place(Bump& bump, int64_t key, int64_t value, Back& d) {
  float** const wide[] = {&d.out, &d.e, &d.km, &d.ks, &d.ka};
  for (float** at : wide) *at = bump.take(kC * value);
  d.q = bump.take(kC * key), d.k = bump.take(kC * key);
  d.oe = bump.take(kC * kC), d.ee = bump.take(kC * kC);
  d.g = bump.take((kC + 1) * kC), d.h = bump.take((kC + 1) * kC);
  d.b = bump.take(kC + 1), d.f = bump.take(kC + 1), d.p = bump.take(kC + 1);
}

// The gradients of e: the system backwards.
void solve_backward(const MomentumTask& t, const Chunk& c, const States& d_to, Back& d) {
  const int64_t n = c.n, width = t.value;
  float* const sums[] = {d.e, d.km, d.ks, d.ka};
  for (float* x : sums) clear(x, n * width);
  multiply(c.k, d_to.m, d.km, n, t.key, width);
  multiply(c.k, d_to.s, d.ks, n, t.key, width);
  multiply(c.k, d_to.a, d.ka, n, t.key, width);
  for (int64_t j = n; j-- > 0;) {
    float* e = d.e + j * width;
    for (int64_t i = j; i < n; ++i) {
      add_scaled(t.scale * c.g[(i + 1) * n + j] * c.qk[i * n + j], d.out + i * width, e, width);
      if (c.read[i] > j) {
        add_scaled(-c.g[c.read[i] * n + j] * c.kk[i * n + j], d.e + i * width, e, width);
      }
    }
    add_scaled(c.g[n * n + j], d.km + j * width, e, width);
    add_scaled(c.h[n * n + j], d.ks + j * width, e, width);
    if (c.anchor > 0) add_scaled(c.g[c.anchor * n + j], d.ka + j * width, e, width);
  }
  multiply_by_transposed(d.out, c.e, d.oe, n, n, width);
  multiply_by_transposed(d.e, c.e, d.ee, n, n, width);
}

// Gradients of the coefficients, and through their recurrences of the gates.
void coefficients_backward(const MomentumTask& t, const Chunk& c, const States& at,
                           const States& d_to, Back& d) {
  const int64_t n = c.n, width = t.value, size = t.key * t.value;
  clear(d.g, (n + 1) * n), clear(d.h, (n + 1) * n);
  clear(d.b, n + 1), clear(d.f, n + 1), clear(d.p, n + 1);
  for (int64_t i = 0; i < n; ++i) {
    const float *e = c.e + i * width, *out = d.out + i * width, *de = d.e + i * width;
    const int64_t r = c.read[i];
    for (int64_t j = 0; j <= i; ++j) {
      d.g[(i + 1) * n + j] += t.scale * c.qk[i * n + j] * d.oe[i * n + j];
      if (j < r) d.g[r * n + j] -= c.kk[i * n + j] * d.ee[i * n + j];
    }
    d.g[n * n + i] += dot(e, d.km + i * width, width);
    d.h[n * n + i] += dot(e, d.ks + i * width, width);
    if (c.anchor > 0) d.g[c.anchor * n + i] += dot(e, d.ka + i * width, width);
    d.b[i + 1] += t.scale * dot(out, c.qm + i * width, width);
    d.f[i + 1] += t.scale * dot(out, c.qs + i * width, width);
    if (r < 0) continue;
    d.b[r] -= dot(de, c.km + i * width, width);
    d.f[r] -= dot(de, c.ks + i * width, width);
  }
  d.b[n] += dot(at.m, d_to.m, size);
  d.f[n] += dot(at.s, d_to.m, size);
  d.p[n] += dot(at.s, d_to.s, size);
  if (c.anchor >= 0) {
    d.b[c.anchor] += dot(at.m, d_to.a, size);
    d.f[c.anchor] += dot(at.s, d_to.a, size);
  }
  for (int64_t i = n; i-- > 0;) {
    float *dg = d.g + (i + 1) * n, *dh = d.h + (i + 1) * n;
    float d_keep = d.b[i + 1] * c.b[i] + d.f[i + 1] * c.f[i];
    d.p[i + 1] += d.f[i + 1];
    float d_eta = d.p[i + 1] * c.p[i];
    d.b[i] += c.keep[i] * d.b[i + 1];
    d.f[i] += c.keep[i] * d.f[i + 1];
    d.p[i] += c.eta[i] * d.p[i + 1];
    for (int64_t j = 0; j <= i; ++j) {
      dh[j] += dg[j];
      if (j == i) continue;
      d_keep += c.g[i * n + j] * dg[j];
      d_eta += c.h[i * n + j] * dh[j];
      d.g[i * n + j] += c.keep[i] * dg[j];
      d.h[i * n + j] += c.eta[i] * dh[j];
    }
    d.theta[i] = dh[i], d.alpha[i] = -d_keep, d.eta[i] = d_eta;
  }
}

// x [key] += factor * matrix [key, value] y [value]
WEFT_INLINE void add_product(const MomentumTask& t, float factor, const float* matrix,
                             const float* y, float* x) {
  if (factor == 0.0f) return;
  for (int64_t i = 0; i < t.key; ++i) x[i] += factor * dot(matrix + i * t.value, y, t.value);
}

void keys_backward(const MomentumTask& t, const Chunk& c, const States& at, const States& d_to,
                   Back& d) {
  const int64_t n = c.n, key = t.key, width = t.value;
  clear(d.q, n * key), clear(d.k, n * key);
  for (int64_t i = 0; i < n; ++i) {
    const float *out = d.out + i * width, *de = d.e + i * width, *e = c.e + i * width;
    float *dq = d.q + i * key, *dk = d.k + i * key;
    const int64_t r = c.read[i];
    add_product(t, t.scale * c.b[i + 1], at.m, out, dq);
    add_product(t, t.scale * c.f[i + 1], at.s, out, dq);
    if (r < 0) {
      add_product(t, -1.0f, at.a, de, dk);
    } else {
      add_product(t, -c.b[r], at.m, de, dk);
      add_product(t, -c.f[r], at.s, de, dk);
    }
    add_product(t, c.g[n * n + i], d_to.m, e, dk);
    add_product(t, c.h[n * n + i], d_to.s, e, dk);
    if (c.anchor > 0) add_product(t, c.g[c.anchor * n + i], d_to.a, e, dk);
    for (int64_t j = 0; j <= i; ++j) {
      const float read = t.scale * c.g[(i + 1) * n + j] * d.oe[i * n + j];
      add_scaled(read, c.k + j * key, dq, key);
      add_scaled(read, c.q + i * key, d.k + j * key, key);
      if (j >= r) continue;
      const float written = -c.g[r * n + j] * d.ee[i * n + j];
      add_scaled(written, c.k + j * key, dk, key);
      add_scaled(written, c.k + i * key, d.k + j * key, key);
    }
  }
}

// d_to becomes the gradient of the entering states.
void states_backward(const MomentumTask& t, const Chunk& c, const Back& d, const States& d_to,
                     const States& d_at) {
  const int64_t n = c.n, size = t.key * t.value;
  clear(d_at.m, size), clear(d_at.s, size), clear(d_at.a, size);
  add_scaled(c.b[n], d_to.m, d_at.m, size);
  add_scaled(c.f[n], d_to.m, d_at.s, size);
  add_scaled(c.p[n], d_to.s, d_at.s, size);
  if (c.anchor < 0) {
    add_scaled(1.0f, d_to.a, d_at.a, size);
  } else {
    add_scaled(c.b[c.anchor], d_to.a, d_at.m, size);
    add_scaled(c.f[c.anchor], d_to.a, d_at.s, size);
  }
  const auto add = [&](float factor, const float* key, const float* value, float* x) {
    if (factor == 0.0f) return;
    for (int64_t i = 0; i < t.key; ++i) {
      add_scaled(factor * key[i], value, x + i * t.value, t.value);
    }
  };
  for (int64_t i = 0; i < n; ++i) {
    const float *q = c.q + i * t.key, *k = c.k + i * t.key;
    const float *out = d.out + i * t.value, *e = d.e + i * t.value;
    const int64_t r = c.read[i];
    add(t.scale * c.b[i + 1], q, out, d_at.m);
    add(t.scale * c.f[i + 1], q, out, d_at.s);
    add(r < 0 ? -1.0f : -c.b[r], k, e, r < 0 ? d_at.a : d_at.m);
    if (r > 0) add(-c.f[r], k, e, d_at.s);
  }
}

int64_t backward_scratch(int64_t tokens, int64_t key, int64_t value) {
  const int64_t chunks = (tokens + kC - 1) / kC;
  return chunk_floats(key, value) + back_floats(key, value) + 3 * (chunks + 3) * (key * value + 16);
}

void write_gates(const float* from, const Chunk& c, const Rows& to) {
  if (to.data == nullptr) return;
  for (int64_t i = 0; i < c.n; ++i) row<float>(to, c.first + i)[0] = from[i];
}

void backward(const MomentumTask& t, const MomentumGradients& g, float* scratch) {
  const int64_t size = t.key * t.value, step = (size + 15) / 16 * 16;
  Bump bump{scratch};
  Chunk c;
  Back d;
  place(bump, t.key, t.value, c);
  place(bump, t.key, t.value, d);
  States d_to = take_states(bump, size), d_at = take_states(bump, size);
  // The states before every chunk, and after the last.
  const int64_t chunks = (t.tokens + kC - 1) / kC;
  float* kept = bump.take(3 * step * (chunks + 1));
  const auto states = [&](int64_t i) {
    return States{kept + 3 * i * step, kept + (3 * i + 1) * step, kept + (3 * i + 2) * step};
  };
  enter(t, states(0));
  for (int64_t i = 0; i < chunks; ++i) {
    load_chunk(t, i * kC, c);
    solve(t, states(i), c);
    advance(t, c, states(i), states(i + 1));
  }
  g.d_m == nullptr ? clear(d_to.m, size) : move(g.d_m, d_to.m, size);
  g.d_s == nullptr ? clear(d_to.s, size) : move(g.d_s, d_to.s, size);
  g.d_anchor == nullptr ? clear(d_to.a, size) : move(g.d_anchor, d_to.a, size);
  for (int64_t i = chunks; i-- > 0;) {
    load_chunk(t, i * kC, c);
    solve(t, states(i), c);
    read_rows(g.d_out, i * kC, c.n, t.value, d.out);
    if (c.anchor == c.n) {  // what leaves as the anchor is M
      add_scaled(1.0f, d_to.a, d_to.m, size);
      clear(d_to.a, size);
    }
    solve_backward(t, c, d_to, d);
    coefficients_backward(t, c, states(i), d_to, d);
    keys_backward(t, c, states(i), d_to, d);
    states_backward(t, c, d, d_to, d_at);
    const States free = d_to;
    d_to = d_at, d_at = free;
    write_rows(d.q, i * kC, c.n, t.key, g.dq);
    write_rows(d.k, i * kC, c.n, t.key, g.dk);
    write_rows(d.e, i * kC, c.n, t.value, g.dv);
    write_gates(d.theta, c, g.d_theta);
    write_gates(d.alpha, c, g.d_alpha);
    write_gates(d.eta, c, g.d_eta);
  }
  if (t.anchor == nullptr) add_scaled(1.0f, d_to.a, d_to.m, size);
  if (g.m != nullptr) move(d_to.m, g.m, size);
  if (g.s != nullptr) move(d_to.s, g.s, size);
  if (g.anchor != nullptr) move(d_to.a, g.anchor, size);
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const MomentumTable& momentum_table(ThisIsa) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr MomentumTable table{here::forward_scratch, here::forward, here::backward_scratch,
                                       here::backward};
  return table;
}

}  // namespace weft::kernels
