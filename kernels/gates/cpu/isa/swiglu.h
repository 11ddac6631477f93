#pragma once

#include "kernels/gates/cpu/isa/ffn_activation.h"

namespace weft::kernels {

// kSwiglu alone. In one file with the other activations the compiler fuses multiply-adds of its
// backward differently, which changes bits of bf16.
struct SwigluTable {
  void (*forward)(const Hidden&, int64_t begin, int64_t end);
  void (*backward)(const Hidden&, int64_t begin, int64_t end);
};
const SwigluTable& table(IsaTag<Isa::kPlain>, const SwigluTable*);
const SwigluTable& table(IsaTag<Isa::kAvx2>, const SwigluTable*);
const SwigluTable& table(IsaTag<Isa::kAvx512>, const SwigluTable*);

}  // namespace weft::kernels
