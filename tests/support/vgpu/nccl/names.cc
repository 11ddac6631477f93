#include "tests/support/vgpu/nccl/exchange.h"

namespace vgpu {

const char* name_of(Call call) {
  constexpr const char* kNames[] = {"all_reduce",     "reduce",     "broadcast", "all_gather",
                                    "reduce_scatter", "all_to_all", "gather",    "scatter",
                                    "send",           "receive"};
  return kNames[static_cast<uint32_t>(call)];
}

const char* name_of(ElementType type) {
  constexpr const char* kNames[] = {"i8",  "u8",  "i32", "u32",  "i64",  "u64",
                                    "f16", "f32", "f64", "bf16", "e4m3", "e5m2"};
  return kNames[static_cast<uint32_t>(type)];
}

const char* name_of(Reduction reduction) {
  constexpr const char* kNames[] = {"sum", "product", "max", "min", "average"};
  return kNames[static_cast<uint32_t>(reduction)];
}

uint64_t bytes_of(ElementType type) {
  constexpr uint64_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kBytes[static_cast<uint32_t>(type)];
}

}  // namespace vgpu
