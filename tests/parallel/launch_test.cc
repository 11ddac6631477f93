#include "parallel/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace weft::test {
namespace {

Launch with(const std::map<std::string, std::string>& variables) {
  return launch_of([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, AloneIsAWorldOfOne) {
  const Launch alone =
      with({{"SLURM_NTASKS", "8"}});  // a shell in an allocation, not one of srun's processes
  EXPECT_EQ(alone.size, 1);
  EXPECT_EQ(alone.rank, 0);
}

TEST(Launch, ReadsOpenMpiAndSlurm) {
  const Launch mpirun = with({{"OMPI_COMM_WORLD_SIZE", "6"},
                              {"OMPI_COMM_WORLD_RANK", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}});
  EXPECT_EQ(mpirun.size, 6);
  EXPECT_EQ(mpirun.rank, 4);
  EXPECT_EQ(mpirun.local_rank, 1);
  EXPECT_EQ(mpirun.local_size, 3);
  const Launch srun = with({{"PMIX_RANK", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}});
  EXPECT_EQ(srun.size, 8);
  EXPECT_EQ(srun.rank, 5);
  EXPECT_EQ(with({{"OMPI_COMM_WORLD_SIZE", "six"}}).size, 1);
}

TEST(Launch, SharesCoresWithTheRanksThatMayUseThem) {
  const CoreMask all = {0xff}, low = {0x0f}, high = {0xf0}, one = {0x01};
  EXPECT_EQ(threads_for({all}, 0), 8);
  EXPECT_EQ(threads_for({all, all, all}, 2), 2);         // not bound: 8 cores over 3 ranks
  EXPECT_EQ(threads_for({low, low, high, high}, 3), 2);  // bound to sockets, two ranks each
  EXPECT_EQ(threads_for({low, high}, 1), 4);             // bound apart
  EXPECT_EQ(threads_for({one, one, one}, 1), 1);         // more ranks than cores
  EXPECT_EQ(threads_for({{0, 0xff}, {0xff, 0}}, 0), 8);  // cores beyond 64
}

}  // namespace
}  // namespace weft::test
