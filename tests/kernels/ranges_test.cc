#include "kernels/rows/ranges.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/host_access.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

// Small ranges, empty ones, and one that threads share (more than a block), packed and unpacked.
TEST(CopyRanges, PackAndUnpackTensorsOfAnyType) {
  Rig rig;
  for (const DType type : {DType::kF32, DType::kBF16, DType::kI64}) {
    std::vector<Tensor> parts;
    int64_t total = 0;
    for (const int64_t count : {3, 0, 700'001, 1}) {
      parts.push_back(rig.exec.zeros({count}, type));
      auto* bytes = static_cast<char*>(host_bytes(parts.back()));
      for (int64_t i = 0; i < parts.back().bytes(); ++i) {
        bytes[i] = static_cast<char>((i * 31 + total) % 251);
      }
      total += count;
    }
    const Tensor packed = rig.exec.zeros({total}, type);
    std::vector<kernels::CopiedRange> in, out;
    std::vector<Tensor> back;
    int64_t at = 0;
    for (const Tensor& part : parts) {
      back.push_back(rig.exec.zeros(part.shape(), type));
      const Tensor place = packed.slice(at, part.elements());
      in.push_back({part, place});
      out.push_back({place, back.back()});
      at += part.elements();
    }
    kernels::copy_ranges(rig.exec, in);
    kernels::copy_ranges(rig.exec, out);
    const auto* whole = static_cast<const char*>(host_bytes(packed));
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto bytes = static_cast<size_t>(parts[i].bytes());
      EXPECT_EQ(std::memcmp(host_bytes(back[i]), host_bytes(parts[i]), bytes), 0) << i;
      EXPECT_EQ(std::memcmp(whole, host_bytes(parts[i]), bytes), 0) << i << ": not in order";
      whole += bytes;
    }
  }
}

TEST(CopyRanges, RefuseOtherSizesAndTypes) {
  Rig rig;
  const Tensor three = rig.exec.zeros({3}), four = rig.exec.zeros({4}),
               halves = rig.exec.zeros({3}, DType::kBF16);
  const std::vector<kernels::CopiedRange> longer = {{three, four}}, other = {{three, halves}};
  EXPECT_THROW(kernels::copy_ranges(rig.exec, longer), Error);
  EXPECT_THROW(kernels::copy_ranges(rig.exec, other), Error);
}

}  // namespace
}  // namespace weft::test
