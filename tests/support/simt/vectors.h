#pragma once

#include <cstdint>

// CUDA's vector types, with its alignment: one load or store of the whole.
#define SIMT_VECTORS(name, scalar)                                     \
  struct alignas(2 * sizeof(scalar)) name##2 {                         \
    scalar x, y;                                                       \
  };                                                                   \
  struct alignas(4 * sizeof(scalar)) name##4 {                         \
    scalar x, y, z, w;                                                 \
  };                                                                   \
  inline name##2 make_##name##2(scalar x, scalar y) { return {x, y}; } \
  inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }

SIMT_VECTORS(float, float)
SIMT_VECTORS(int, int32_t)
SIMT_VECTORS(uint, uint32_t)
SIMT_VECTORS(ushort, uint16_t)
#undef SIMT_VECTORS
