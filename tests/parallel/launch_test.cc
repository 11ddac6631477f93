#include "parallel/layout/launch.h"

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

// Slurm lists the tasks of a step's nodes, "4(x2),3": 4, 4 and 3.
TEST(Launch, CountsTheTasksOfItsOwnNodeUnderSlurm) {
  const auto local_size = [](const std::string& list, const std::string& node,
                             const std::string& asked = "") {
    std::map<std::string, std::string> all = {{"PMIX_RANK", "0"}, {"SLURM_NTASKS", "11"}};
    if (!list.empty()) all["SLURM_STEP_TASKS_PER_NODE"] = list;
    if (!node.empty()) all["SLURM_NODEID"] = node;
    if (!asked.empty()) all["SLURM_NTASKS_PER_NODE"] = asked;
    return with(all).local_size;
  };
  EXPECT_EQ(local_size("4(x2),3", "0"), 4);
  EXPECT_EQ(local_size("4(x2),3", "1"), 4);
  EXPECT_EQ(local_size("4(x2),3", "2"), 3);
  EXPECT_EQ(local_size("2,3(x2),1", "3"), 1);
  EXPECT_EQ(local_size("8", "0"), 8);
  EXPECT_EQ(local_size("8", ""), 8);
  EXPECT_EQ(local_size("3(x2)", "1", "6"), 3);  // the request differs from the allocation
  EXPECT_EQ(local_size("", "0", "6"), 6);
  EXPECT_EQ(local_size("", ""), 1);
  for (const char* broken : {"4", "4(x", "4(x1", ",", "x", "-4(x9)", "0(x9)", "4(x1)3"}) {
    EXPECT_EQ(local_size(broken, "1"), 1) << broken;
  }
}

TEST(Launch, CutsCoresIntoPartsOfTheirOwn) {
  EXPECT_EQ(part_of({0xff}, 0, 2), (CoreMask{0x0f}));
  EXPECT_EQ(part_of({0xff}, 1, 2), (CoreMask{0xf0}));
  EXPECT_EQ(part_of({0xb1}, 1, 2), (CoreMask{0xa0}));        // of cores 0, 4, 5 and 7
  EXPECT_EQ(part_of({0x7f}, 2, 3), (CoreMask{0x70}));        // 2, 2 and 3
  EXPECT_EQ(part_of({0x03}, 2, 3), (CoreMask{0x03}));        // too few
  EXPECT_EQ(part_of({0, 0x0f}, 1, 2), (CoreMask{0, 0x0c}));  // beyond 64
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
