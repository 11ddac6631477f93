// Tests of NCCL without a GPU: it is linked, loads, and is refused with a clear message.
#include "parallel/comm/nccl.h"

#include <gtest/gtest.h>

#include "core/gpu/cuda_driver.h"
#include "parallel/comm/self_comm.h"
#include "parallel/comm/thread_comm.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

TEST(Nccl, HasAVersionOrAReason) {
  const kernels::LibraryVersion nccl = nccl_version();
  if (nccl.version.empty()) {
    EXPECT_FALSE(nccl.why_not.empty());
    GTEST_SKIP() << "NCCL is " << nccl.why_not;
  }
  EXPECT_GE(nccl.version.find('.'), 1u) << nccl.version;
}

TEST(Nccl, AGroupWithoutADriverIsAnErrorInWords) {
  if (nccl_version().version.empty()) GTEST_SKIP() << "NCCL is " << nccl_version().why_not;
  if (find_cuda_driver().why_not.empty()) GTEST_SKIP() << "there is a GPU here";
  run_ranks(1, [](ThreadComm& world, Exec&) {
    const std::string why = message_of<Error>([&] { nccl_over(world.hosts(), 0); });
    EXPECT_NE(why.find("world[0/1] in cuda"), std::string::npos) << why;
    EXPECT_NE(why.find("driver"), std::string::npos) << why;
  });
}

TEST(CudaDriver, SaysWhatIsMissing) {
  const CudaDriver driver = find_cuda_driver();
  EXPECT_EQ(driver.why_not.empty(), driver.devices > 0) << driver.why_not;
}

}  // namespace
}  // namespace weft::test
