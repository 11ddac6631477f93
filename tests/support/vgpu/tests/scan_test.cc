// Kernels of the project, compiled by nvcc and linked like any CUDA program.
#include <gtest/gtest.h>

#include "tests/support/vgpu/tests/on_vgpu.h"

namespace weft::test {
namespace {

TEST(Vgpu, ScalarScanAgreesWithTheCpuAndGivesTheSameBitsInAnyOrder) {
  std::string bits;
  for (const char* order : {"VGPU_ORDER=0", "VGPU_ORDER=1", "VGPU_ORDER=2"}) {
    const Outcome o = on_vgpu({vgpu_program("vgpu_scan")}, {order, "VGPU_ARCH=80"});
    ASSERT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_EQ(o.out.substr(0, 5), "bits ");
    if (bits.empty()) bits = o.out;
    EXPECT_EQ(o.out, bits) << order;
  }
}

}  // namespace
}  // namespace weft::test
