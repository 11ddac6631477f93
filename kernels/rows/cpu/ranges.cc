#include "kernels/rows/cpu/ranges.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/dispatch.h"

namespace weft::kernels::cpu {

void copy_ranges(Exec& exec, std::span<const CopiedRange> ranges) {
  constexpr int64_t kBlock = 1 << 20;  // bytes: a large range is shared by threads
  struct Block {
    char* to;
    const char* from;
    int64_t bytes;
  };
  std::vector<Block> blocks;
  for (const auto& [x, y] : ranges) {
    const int64_t bytes = bytes_of(x);
    for (int64_t at = 0; at < bytes; at += kBlock) {
      blocks.push_back({static_cast<char*>(y.data) + at, static_cast<const char*>(x.data) + at,
                        std::min(kBlock, bytes - at)});
    }
  }
  exec.threads.run(std::ssize(blocks), [&](int64_t i) {
    const Block& block = blocks[static_cast<size_t>(i)];
    std::memcpy(block.to, block.from, static_cast<size_t>(block.bytes));
  });
}

}  // namespace weft::kernels::cpu
