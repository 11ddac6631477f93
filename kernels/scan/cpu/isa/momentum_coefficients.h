#pragma once

#include "kernels/scan/cpu/isa/momentum_scan.h"
#include "kernels/tile/cpu_storage.h"

// The scalar half of descent with momentum: how the states and errors of a chunk weigh in the
// states after each of its tokens (programs/momentum_scan.h), one number at a time, and back to the
// gates. Small beside the products of a chunk. Include only from cpu/isa/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

inline constexpr int64_t kMomentumChunk = 64;

struct MomentumCoefficients {
  static constexpr int64_t kC = kMomentumChunk;
  int64_t n = 0;                             // tokens
  float theta[kC], keep[kC], eta[kC];        // keep: 1 - alpha
  float b[kC + 1], f[kC + 1], p[kC + 1];     // of the states after 0 .. n tokens
  float g[(kC + 1) * kC], h[(kC + 1) * kC];  // [n + 1, kC]
  float read[kC * kC];                       // rows r(i) of g
  float b_read[kC], f_read[kC], before[kC];
  int64_t from[kC];    // r(i), or -1: the anchor that entered
  int64_t anchor = 0;  // the state that leaves as the anchor, or -1: the one that entered

  bool reads_anchor() const { return n > 0 && from[0] < 0; }
  bool moves_anchor() const { return anchor >= 0 && anchor < n; }
};

WEFT_INLINE float gate_at(const tile::InVector& gate, int64_t i) {
  return gate.empty() ? 0.0f : gate.data[i * gate.stride];
}

// r(i), and what the errors of the chunk read.
inline void momentum_reads(const MomentumTask& task, int64_t first, MomentumCoefficients& c) {
  constexpr int64_t kC = kMomentumChunk;
  for (int64_t i = 0; i < c.n; ++i) {
    const int64_t state = i - (task.before + first + i) % task.mini_batch;
    const bool inside = state >= 0;
    c.from[i] = inside ? state : -1;
    c.b_read[i] = inside ? c.b[state] : 0.0f;
    c.f_read[i] = inside ? c.f[state] : 0.0f;
    c.before[i] = inside ? 0.0f : 1.0f;
    for (int64_t j = 0; j < c.n; ++j) c.read[i * kC + j] = inside ? c.g[state * kC + j] : 0.0f;
  }
  const int64_t state = c.n - (task.before + first + c.n) % task.mini_batch;
  c.anchor = state < 0 ? -1 : state;
}

inline void momentum_coefficients(const MomentumTask& task, int64_t first, int64_t n,
                                  MomentumCoefficients& c) {
  constexpr int64_t kC = kMomentumChunk;
  c.n = n;
  c.b[0] = 1.0f, c.f[0] = 0.0f, c.p[0] = 1.0f;
  for (int64_t j = 0; j < n; ++j) c.g[j] = c.h[j] = 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    c.theta[i] = gate_at(task.theta, first + i);
    c.keep[i] = 1.0f - gate_at(task.alpha, first + i);
    c.eta[i] = gate_at(task.eta, first + i);
    const float *g = c.g + i * kC, *h = c.h + i * kC;
    float *next_g = c.g + (i + 1) * kC, *next_h = c.h + (i + 1) * kC;
    for (int64_t j = 0; j < n; ++j) {
      next_h[j] = j == i ? c.theta[i] : c.eta[i] * h[j];
      next_g[j] = c.keep[i] * g[j] + next_h[j];
    }
    c.b[i + 1] = c.keep[i] * c.b[i];
    c.p[i + 1] = c.eta[i] * c.p[i];
    c.f[i + 1] = c.keep[i] * c.f[i] + c.p[i + 1];
  }
  momentum_reads(task, first, c);
}

// Gradients of what the program reads of the coefficients.
struct MomentumCoefficientGradients {
  static constexpr int64_t kC = kMomentumChunk;
  float out_g[kC * kC], read_g[kC * kC];
  float b_out[kC], f_out[kC], b_read[kC], f_read[kC], to_m[kC], to_s[kC], to_a[kC];
  float g[(kC + 1) * kC], h[(kC + 1) * kC], b[kC + 1], f[kC + 1], p[kC + 1];
};

struct MomentumEnds {
  float b, f, p, b_a, f_a;  // gradients of b, f, p at the end, and of b and f at the anchor
};

// All of them at the states they belong to.
inline void momentum_gather(const MomentumCoefficients& c, const MomentumEnds& ends,
                            MomentumCoefficientGradients& d) {
  constexpr int64_t kC = kMomentumChunk;
  const int64_t n = c.n;
  for (int64_t i = 0; i <= n; ++i) {
    d.b[i] = d.f[i] = d.p[i] = 0.0f;
    for (int64_t j = 0; j < n; ++j) d.g[i * kC + j] = d.h[i * kC + j] = 0.0f;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t r = c.from[i];
    d.b[i + 1] += d.b_out[i], d.f[i + 1] += d.f_out[i];
    for (int64_t j = 0; j <= i; ++j) d.g[(i + 1) * kC + j] += d.out_g[i * kC + j];
    d.g[n * kC + i] += d.to_m[i], d.h[n * kC + i] += d.to_s[i];
    if (c.moves_anchor()) d.g[c.anchor * kC + i] += d.to_a[i];
    if (r < 0) continue;
    d.b[r] += d.b_read[i], d.f[r] += d.f_read[i];
    for (int64_t j = 0; j < r; ++j) d.g[r * kC + j] += d.read_g[i * kC + j];
  }
  d.b[n] += ends.b, d.f[n] += ends.f, d.p[n] += ends.p;
  if (c.moves_anchor()) d.b[c.anchor] += ends.b_a, d.f[c.anchor] += ends.f_a;
}

struct MomentumGateGradients {
  tile::OutVector theta, alpha, eta;
};

// Back through the recurrences.
inline void momentum_coefficients_backward(const MomentumCoefficients& c, int64_t first,
                                           MomentumCoefficientGradients& d,
                                           const MomentumGateGradients& to) {
  constexpr int64_t kC = kMomentumChunk;
  const auto put = [&](const tile::OutVector& gate, int64_t i, float x) {
    if (!gate.empty()) gate.data[(first + i) * gate.stride] = x;
  };
  for (int64_t i = c.n; i-- > 0;) {
    float *dg = d.g + (i + 1) * kC, *dh = d.h + (i + 1) * kC;
    float d_keep = d.b[i + 1] * c.b[i] + d.f[i + 1] * c.f[i];
    d.p[i + 1] += d.f[i + 1];
    float d_eta = d.p[i + 1] * c.p[i];
    d.b[i] += c.keep[i] * d.b[i + 1];
    d.f[i] += c.keep[i] * d.f[i + 1];
    d.p[i] += c.eta[i] * d.p[i + 1];
    for (int64_t j = 0; j <= i; ++j) dh[j] += dg[j];
    for (int64_t j = 0; j < i; ++j) {
      d_keep += c.g[i * kC + j] * dg[j];
      d_eta += c.h[i * kC + j] * dh[j];
      d.g[i * kC + j] += c.keep[i] * dg[j];
      d.h[i * kC + j] += c.eta[i] * dh[j];
    }
    put(to.theta, i, dh[i]);
    put(to.alpha, i, -d_keep);
    put(to.eta, i, d_eta);
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
