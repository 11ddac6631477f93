#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct Rwkv7KeysArgs {
  int64_t heads, width;
  ConstRows k, gate;
  const float *k_k, *k_a;
};
// The sums are the block's own and are overwritten.
struct Rwkv7KeysBack {
  ConstRows d_alpha, d_beta, d_key;
  Rows dk, d_gate;
  float *d_k_k, *d_k_a;
};
struct Rwkv7OutputArgs {
  int64_t heads, width;
  float epsilon;
  ConstRows o, r, k, v, gate;
  const float *weight, *bias, *r_k;
};
struct Rwkv7OutputBack {
  ConstRows dy;
  Rows d_o, dr, dk, dv, d_gate;
  float *d_weight, *d_bias, *d_r_k;
};

// Rows [begin, end).
struct Rwkv7Table {
  void (*keys)(const Rwkv7KeysArgs& in, const Rows& alpha, const Rows& beta, const Rows& key,
               int64_t begin, int64_t end);
  void (*keys_backward)(const Rwkv7KeysArgs& in, const Rwkv7KeysBack& back, int64_t begin,
                        int64_t end);
  void (*output)(const Rwkv7OutputArgs& in, const Rows& y, int64_t begin, int64_t end);
  void (*output_backward)(const Rwkv7OutputArgs& in, const Rwkv7OutputBack& back, int64_t begin,
                          int64_t end);
};
const Rwkv7Table& table(IsaTag<Isa::kPlain>, const Rwkv7Table*);
const Rwkv7Table& table(IsaTag<Isa::kAvx2>, const Rwkv7Table*);
const Rwkv7Table& table(IsaTag<Isa::kAvx512>, const Rwkv7Table*);

}  // namespace weft::kernels
