#include <bit>

#include "core/base/dtype.h"
#include "tests/support/simt/cuda.h"

// The tensor-core instructions as the PTX manual defines them: which lane holds which entry of a
// matrix. In all of them lane = 4 * g + t.
namespace weft::kernels::cuda {
namespace {

using simt::kAllLanes;
using simt::kWarp;
using simt::WarpCall;

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
  simt::observe(row, 16, simt::Access::kRead);
  WarpCall call{
      kAllLanes, {turned ? "ldmatrix.trans" : "ldmatrix", "", 0}, execute_load<turned>, {row}, to};
  simt::warp_call(call);
}

// d [16, 8] += a [16, depth] b [depth, 8] for matrices gathered from all lanes. The hardware adds
// in an order and precision of its own; here products are added one after the other in f32. Rows
// of d are the inner loop, which compilers vectorize.
template <int depth>
struct Matrices {
  float a[16][depth], b[depth][8], d[16][8];

  void take(unsigned lane, const float* x) {
    for (unsigned e = 0; e < 4; ++e) entry(lane, e) = x[e];
  }
  void give(unsigned lane, float* x) {
    for (unsigned e = 0; e < 4; ++e) x[e] = entry(lane, e);
  }

 private:
  float& entry(unsigned lane, unsigned e) {
    return d[lane / 4 + 8 * (e / 2)][2 * (lane % 4) + e % 2];
  }
};

// Compiled once more for wider vectors; the order of sums, and hence the bits, are the same.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SIMT_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define SIMT_WIDE
#endif
template <int depth>
[[gnu::always_inline]] inline void multiply_by_rows(Matrices<depth>& m) {
  for (int i = 0; i < 16; i += 4) {  // four rows at a time hide the latency of additions
    float sum[4][8];
    std::memcpy(sum, m.d[i], sizeof sum);
    for (int k = 0; k < depth; ++k) {
      for (int r = 0; r < 4; ++r) {
        for (int j = 0; j < 8; ++j) sum[r][j] += m.a[i + r][k] * m.b[k][j];
      }
    }
    std::memcpy(m.d[i], sum, sizeof sum);
  }
}
SIMT_WIDE void multiply(Matrices<16>& m) { multiply_by_rows(m); }
SIMT_WIDE void multiply(Matrices<8>& m) { multiply_by_rows(m); }

// mma.m16n8k16: a0 (g, 2t..), a1 (g + 8, 2t..), a2 (g, 2t + 8..), a3 (g + 8, 2t + 8..); b0 (2t..,
// g), b1 (2t + 8.., g); d0, d1 (g, 2t..), d2, d3 (g + 8, 2t..).
void put(Matrices<16>& m, unsigned lane, const uint32_t* a, const uint32_t* b) {
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

// mma.m16n8k8: a0 (g, t), a1 (g + 8, t), a2 (g, t + 4), a3 (g + 8, t + 4); b0 (t, g), b1 (t + 4,
// g); d as above. Of every number the hardware reads the 19 bits of tf32.
float seen_as_tf32(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~0x1fffu); }
void put(Matrices<8>& m, unsigned lane, const float* a, const float* b) {
  const unsigned g = lane / 4, t = lane % 4;
  for (unsigned r = 0; r < 4; ++r) {
    m.a[g + 8 * (r % 2)][t + 4 * (r / 2)] = seen_as_tf32(a[r]);
  }
  for (unsigned r = 0; r < 2; ++r) m.b[t + 4 * r][g] = seen_as_tf32(b[r]);
}

// One instruction as one lane gives it.
template <class Register>
struct Instruction {
  float* d;
  const Register *a, *b;
};

// `count` instructions, one after the other, in one call of the warp.
template <class Register, int depth, int count>
void execute_all(WarpCall* const* lanes) {
  for (int i = 0; i < count; ++i) {
    Matrices<depth> m;
    const auto of_lane = [&](unsigned lane) {
      return static_cast<const Instruction<Register>*>(lanes[lane]->in[0])[i];
    };
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      m.take(lane, of_lane(lane).d);
      put(m, lane, of_lane(lane).a, of_lane(lane).b);
    }
    multiply(m);
    for (unsigned lane = 0; lane < kWarp; ++lane) m.give(lane, of_lane(lane).d);
  }
}

template <int count>
void multiply_add(const Instruction<uint32_t> (&instructions)[count]) {
  WarpCall call{kAllLanes,
                {"mma.m16n8k16", "", 0},
                execute_all<uint32_t, 16, count>,
                {instructions},
                nullptr};
  simt::warp_call(call);
}
template <int count>
void multiply_add(const Instruction<float> (&instructions)[count]) {
  WarpCall call{
      kAllLanes, {"mma.m16n8k8", "", 0}, execute_all<float, 8, count>, {instructions}, nullptr};
  simt::warp_call(call);
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
  multiply_add<1>({{d, a, b}});
}
void multiply_add_tf32(float (&d)[4], const float (&a)[4], const float* b) {
  multiply_add<1>({{d, a, b}});
}
void multiply_add_pair(float (&left)[4], float (&right)[4], const uint32_t (&a)[4],
                       const uint32_t (&b)[4]) {
  multiply_add<2>({{left, a, b}, {right, a, b + 2}});
}
void multiply_add_pair(float (&left)[4], float (&right)[4], const float (&a)[4],
                       const float (&a_low)[4], const float (&b)[4], const float (&b_low)[4]) {
  multiply_add<6>({{left, a_low, b},
                   {right, a_low, b + 2},
                   {left, a, b_low},
                   {right, a, b_low + 2},
                   {left, a, b},
                   {right, a, b + 2}});
}

}  // namespace weft::kernels::cuda
