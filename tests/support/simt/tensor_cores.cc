#include <bit>

#include "core/dtype.h"
#include "tests/support/simt/cuda.h"

// The tensor-core instructions as the PTX manual defines them: which lane holds which entry of a
// matrix. In all of them lane = 4 * g + t.
namespace weft::kernels::cuda {
namespace {

using simt::kWarp;
using simt::WarpCall;

constexpr unsigned kAll = 0xffffffffu;

float half_of(uint32_t pair, int which) {
  return to_float(bf16{static_cast<uint16_t>(which == 0 ? pair & 0xffffu : pair >> 16)});
}

// Eight rows of eight 16-bit numbers each, four times; lane 8 m + r names row r of matrix m. Lane
// (g, t) gets the entries (g, 2t) and (g, 2t + 1) of each, or (2t, g) and (2t + 1, g) if turned.
template <bool turned>
void execute_load(WarpCall* const* lanes) {
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned m = 0; m < 4; ++m) {
      uint16_t pair[2];
      for (unsigned e = 0; e < 2; ++e) {
        const unsigned row = turned ? 2 * t + e : g, column = turned ? g : 2 * t + e;
        const auto* from = static_cast<const char*>(lanes[8 * m + row]->in[0]);
        std::memcpy(&pair[e], from + 2 * column, sizeof pair[e]);
      }
      static_cast<uint32_t*>(lanes[lane]->out)[m] = uint32_t{pair[1]} << 16 | pair[0];
    }
  }
}

template <bool turned>
void load(uint32_t (&to)[4], const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
    throw simt::Error("ldmatrix: a row does not begin at a multiple of 16 bytes");
  }
  WarpCall call{
      kAll, {turned ? "ldmatrix.trans" : "ldmatrix", "", 0}, execute_load<turned>, {row}, to};
  simt::warp_call(call);
}

// d [16, 8] += a [16, depth] b [depth, 8] for matrices gathered from all lanes. The hardware adds
// in an order and precision of its own; here products are added one after the other in f32.
template <int depth>
struct Matrices {
  float a[16][depth], b[depth][8];
};
template <int depth>
void multiply(const Matrices<depth>& m, WarpCall* const* lanes) {
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    auto* d = static_cast<float*>(lanes[lane]->out);
    for (unsigned e = 0; e < 4; ++e) {
      const unsigned row = lane / 4 + 8 * (e / 2), column = 2 * (lane % 4) + e % 2;
      for (int k = 0; k < depth; ++k) d[e] += m.a[row][k] * m.b[k][column];
    }
  }
}

// mma.m16n8k16: a0 (g, 2t..), a1 (g + 8, 2t..), a2 (g, 2t + 8..), a3 (g + 8, 2t + 8..); b0 (2t..,
// g), b1 (2t + 8.., g); d0, d1 (g, 2t..), d2, d3 (g + 8, 2t..).
void execute_bf16(WarpCall* const* lanes) {
  Matrices<16> m;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const auto* a = static_cast<const uint32_t*>(lanes[lane]->in[0]);
    const auto* b = static_cast<const uint32_t*>(lanes[lane]->in[1]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned e = 0; e < 2; ++e) {
      for (unsigned r = 0; r < 4; ++r) {
        m.a[g + 8 * (r % 2)][2 * t + e + 8 * (r / 2)] = half_of(a[r], static_cast<int>(e));
      }
      for (unsigned r = 0; r < 2; ++r) {
        m.b[2 * t + e + 8 * r][g] = half_of(b[r], static_cast<int>(e));
      }
    }
  }
  multiply(m, lanes);
}

// mma.m16n8k8: a0 (g, t), a1 (g + 8, t), a2 (g, t + 4), a3 (g + 8, t + 4); b0 (t, g), b1 (t + 4,
// g); d as above. Of every number the hardware reads the 19 bits of tf32.
float seen_as_tf32(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~0x1fffu); }
void execute_tf32(WarpCall* const* lanes) {
  Matrices<8> m;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const auto* a = static_cast<const float*>(lanes[lane]->in[0]);
    const auto* b = static_cast<const float*>(lanes[lane]->in[1]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned r = 0; r < 4; ++r) {
      m.a[g + 8 * (r % 2)][t + 4 * (r / 2)] = seen_as_tf32(a[r]);
    }
    for (unsigned r = 0; r < 2; ++r) m.b[t + 4 * r][g] = seen_as_tf32(b[r]);
  }
  multiply(m, lanes);
}

}  // namespace

uint32_t narrow_pair(float low, float high) {
  return uint32_t{to_bf16(high).bits} << 16 | to_bf16(low).bits;
}

// To nearest, ties away from zero. NaN and infinity stay.
float to_tf32(float x) {
  if (!std::isfinite(x)) return x;
  return seen_as_tf32(std::bit_cast<float>(std::bit_cast<uint32_t>(x) + 0x1000u));
}

void load_matrices(uint32_t (&to)[4], const void* row) { load<false>(to, row); }
void load_matrices_turned(uint32_t (&to)[4], const void* row) { load<true>(to, row); }

void multiply_add_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t* b) {
  WarpCall call{kAll, {"mma.m16n8k16", "", 0}, execute_bf16, {a, b}, d};
  simt::warp_call(call);
}
void multiply_add_tf32(float (&d)[4], const float (&a)[4], const float* b) {
  WarpCall call{kAll, {"mma.m16n8k8", "", 0}, execute_tf32, {a, b}, d};
  simt::warp_call(call);
}

}  // namespace weft::kernels::cuda
