#pragma once

#include "kernels/cpu/isa/any.h"
#include "kernels/scan/cpu/isa/elementwise_scan.h"

// One step of the scans in kernels/scan/elementwise_scan.h for a vector of channels, and what they
// look up.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

inline constexpr int64_t kChunk = 32;
inline constexpr int64_t kWidth =
    kScanChannels;  // of a row of scratch: the block's channels, then zeros
inline constexpr float kLog2e = 1.44269504f;

// 2^x for x <= 0, at least 2^-126. The polynomial is exact at 0: decays near one keep their
// distance from it.
WEFT_INLINE VF exp2(VF x) {
  const VF clamped = max(splat(-126.0f), x);
  const VF shifted = clamped + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const VF r = clamped - (shifted - 12582912.0f);
  const VF r2 = r * r;
  const VF p56 = r * 1.5353362e-4f + 1.3398874e-3f;
  const VF p34 = r * 9.6184374e-3f + 5.5503325e-2f;
  const VF p12 = r * 2.4022648e-1f + 6.9314720e-1f;
  const VF p = ((p56 * r2 + p34) * r2 + p12) * r + 1.0f;
  const VU power = (reinterpret_cast<VU>(shifted) << 23) + (127u << 23);
  return p * reinterpret_cast<VF>(power);
}

// Numbers of the channels with channels side by side: [states][kWidth].
struct Tables {
  float* rate;   // -r
  float* decay;  // static: e^{-dt r}; otherwise -r log2(e)
  float* gain;   // static: dt b
  float* read;   // static: c
  float* step;   // static: dt, [kWidth]
  float* skip;   // [kWidth]
};

inline void turn(const ChannelScan& a, const float* from, float* to) {
  for (int64_t n = 0; n < a.states; ++n) {
    for (int64_t c = 0; c < kWidth; ++c) {
      to[n * kWidth + c] = c < a.channels ? from[c * a.states + n] : 0.0f;
    }
  }
}
inline void turn_back(const ChannelScan& a, const float* from, float* to) {
  for (int64_t c = 0; c < a.channels; ++c) {
    for (int64_t n = 0; n < a.states; ++n) to[c * a.states + n] = from[n * kWidth + c];
  }
}
inline void pad(const float* from, int64_t channels, float* to) {
  for (int64_t c = 0; c < kWidth; ++c) {
    to[c] = from != nullptr && c < channels ? from[c] : 0.0f;
  }
}
inline void clear(float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = 0.0f;
}

template <bool kStatic>
inline void fill_tables(const ChannelScan& a, const Tables& w) {
  pad(a.skip, a.channels, w.skip);
  turn(a, a.a_log, w.rate);
  for (int64_t at = 0; at < a.states * kWidth; at += kLanes) {
    const VF rate = -exp(load(w.rate + at));
    store(w.rate + at, rate);
    store(w.decay + at, rate * kLog2e);
  }
  if constexpr (kStatic) {
    pad(a.log_dt, a.channels, w.step);
    turn(a, a.b, w.gain);
    turn(a, a.c, w.read);
    for (int64_t i = 0; i < kWidth; i += kLanes) {
      const VF step = exp(load(w.step + i));
      store(w.step + i, step);
      for (int64_t at = i; at < a.states * kWidth; at += kWidth) {
        store(w.decay + at, exp(step * load(w.rate + at)));
        store(w.gain + at, step * load(w.gain + at));
      }
    }
  }
}

inline void load_state(const ChannelScan& a, const float* from, float* to) {
  for (int64_t n = 0; n < a.states; ++n) {
    pad(from == nullptr ? nullptr : from + n * a.stride, a.channels, to + n * kWidth);
  }
}
inline void store_state(const ChannelScan& a, const float* from, float* to) {
  for (int64_t n = 0; to != nullptr && n < a.states; ++n) {
    for (int64_t c = 0; c < a.channels; ++c) to[n * a.stride + c] = from[n * kWidth + c];
  }
}

struct Tokens {
  int64_t begin, end;
};

// One token of one vector of channels: the factors of the recurrence for state n, at index `at` of
// the tables.
template <bool kStatic>
struct Step {
  const ChannelScan& a;
  const Tables& w;
  VF dt, u;
  const float* b;
  const float* c;

  template <class N>
  WEFT_INLINE Step(const ChannelScan& scan, const Tables& tables, int64_t t, int64_t i, VF x, N n)
      : a(scan), w(tables), dt{}, u(x), b(nullptr), c(nullptr) {
    if constexpr (!kStatic) {
      dt = load(row<float>(a.dt, t) + i, n), u = dt * x;
      b = a.b + t * a.states, c = a.c + t * a.states;
    }
  }
  WEFT_INLINE VF decay(int64_t at) const {
    const VF d = load(w.decay + at);
    return kStatic ? d : exp2(dt * d);
  }
  WEFT_INLINE VF input(int64_t n, int64_t at) const {
    return kStatic ? load(w.gain + at) : splat(b[n]);
  }
  WEFT_INLINE VF read(int64_t n, int64_t at) const {
    return kStatic ? load(w.read + at) : splat(c[n]);
  }
};

// Hands out `count` floats at a time; without memory it only counts them.
struct Place {
  float* base;
  int64_t used = 0;
  WEFT_INLINE float* take(int64_t count) {
    float* here = base == nullptr ? nullptr : base + used;
    used += (count + 15) / 16 * 16;
    return here;
  }
};
inline Tables place_tables(Place& place, int64_t states) {
  const int64_t size = states * kWidth;
  return {place.take(size), place.take(size),   place.take(size),
          place.take(size), place.take(kWidth), place.take(kWidth)};
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
