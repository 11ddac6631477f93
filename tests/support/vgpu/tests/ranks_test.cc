// NCCL between processes: right programs, mistakes with both sides named, what hangs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/scratch_folder.h"
#include "tests/support/vgpu/tests/on_vgpu.h"

namespace weft::test {
namespace {

Outcome run_ranks(const std::string& name, int ranks, std::vector<std::string> environment = {}) {
  environment.push_back("VGPU_DEVICES=4");
  return on_vgpu({vgpu_program("vgpu_ranks"), name, std::to_string(ranks)}, environment);
}

class RightRanks : public testing::TestWithParam<const char*> {};

TEST_P(RightRanks, Pass) {
  for (const int ranks : {1, 2, 3, 4}) {
    const Outcome o = run_ranks(GetParam(), ranks);
    EXPECT_EQ(o.code, 0) << ranks << " ranks\n" << o.out << o.err;
    EXPECT_EQ(o.err, "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, RightRanks,
                         testing::Values("collectives_are_right", "sums_round_alike",
                                         "messages_are_right", "splits_are_right"),
                         [](const auto& info) { return std::string(info.param); });

TEST(VgpuRanks, DevicesOfOneProcess) {
  const Outcome o =
      on_vgpu({vgpu_program("vgpu_ranks"), "devices_of_one_process"}, {"VGPU_DEVICES=4"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
}

struct Wrong {
  const char* name;
  int code;
  std::vector<std::string> said;
  std::vector<std::string> environment = {};
};
void PrintTo(const Wrong& w, std::ostream* to) { *to << w.name; }

class WrongRanks : public testing::TestWithParam<Wrong> {};

TEST_P(WrongRanks, AreNamedWithBothSides) {
  const Wrong& w = GetParam();
  const Outcome o = run_ranks(w.name, 2, w.environment);
  EXPECT_EQ(o.code, w.code) << o.out << o.err;
  for (const std::string& text : w.said) {
    EXPECT_NE(o.err.find(text), std::string::npos) << "not said: " << text << "\n"
                                                   << o.out << o.err;
  }
}

const Wrong kWrong[] = {
    {"different_counts",
     kMistakes,
     {"members of world call NCCL differently, in collective 1",
      "rank 0: all_reduce of 6 f32 numbers (sum), stream 0 command 1",
      "rank 1: all_reduce of 5 f32 numbers (sum), stream 0 command 1"}},
    {"different_calls",
     kMistakes,
     {"rank 0: all_reduce of 6 f32 numbers (sum)",
      "rank 1: broadcast of 6 f32 numbers from rank 0"}},
    {"different_messages",
     kMistakes,
     {"a message is sent and received differently in world",
      "rank 0 sends 5 f32 numbers, stream 0 command 1",
      "rank 1 receives 6 f32 numbers, stream 0 command 1", "device 0:", "device 1:"}},
    {"communicators_in_different_orders",
     7,
     {"rank 0 of 2 waits in all_reduce of 6 f32 numbers (sum) in world",
      "for rank 1, which is in all_reduce of 3 f32 numbers (sum) in other, stream 1 command 1",
      "they wait for each other: calls are in different orders"}},
    {"both_send_first",
     7,
     {"rank 0 of 2 waits in send of 3 f32 numbers to rank 1 in world",
      "for rank 1, which is in send of 3 f32 numbers to rank 0 in world",
      "they wait for each other"}},
    {"a_rank_dies", 9, {"rank 0 of 2 waits in all_reduce", "for rank 1, whose device is gone"}},
    {"abort_while_another_waits", 7, {}},
    {"error_on_request",
     7,
     {"device 0: NCCL fails in all_reduce of 6 f32 numbers (sum) in world", "(VGPU_FAULT)"},
     {"VGPU_FAULT=nccl_error@collective=2:rank=0"}},
    {"without_an_event",
     kMistakes,
     {"all_reduce of 24 bytes, stream 0 command 1", "memset of 24 bytes, stream",
      "no event, stream order or wait of the host orders the two"}},
    {"host_memory", kMistakes, {"all_reduce in world with host memory", "by ncclAllReduce"}},
    {"one_device_twice", 3, {"ranks 0 and 1 of world both use device 0 of"}},
};
INSTANTIATE_TEST_SUITE_P(All, WrongRanks, testing::ValuesIn(kWrong),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(VgpuRanks, ReportBytesByGroupAndOperation) {
  const ScratchFolder folder;
  const std::string report = folder / "report.json";
  ASSERT_EQ(run_ranks("collectives_are_right", 2, {"VGPU_REPORT=" + report}).code, 0);
  const auto r = nlohmann::json::parse(get_file(report));
  EXPECT_EQ(r["processes"], 2);
  EXPECT_EQ(r["devices"], 2);  // no rank touches another rank's device
  for (const auto& c : r["collectives"]) {
    if (c["operation"] != "all_reduce") continue;
    EXPECT_EQ(c["group"], "world");
    EXPECT_EQ(c["calls"], 2 * 2);
    EXPECT_EQ(c["bytes"], 2 * (6 * 4 + 2 * 8));
    return;
  }
  ADD_FAILURE() << "no all_reduce in " << r;
}

TEST(VgpuRanks, RunUnderMpirun) {
  const Outcome o =
      on_vgpu({"mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none",
               vgpu_program("vgpu_ranks"), "messages_are_right"},
              {"VGPU_DEVICES=2", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
}

// Ranks of mpirun on two network namespaces with host names of their own, where the machine has
// them (root, iproute2).
TEST(VgpuRanks, RunOnTwoNodes) {
  const std::string nodes = in_project("tests/support/two_nodes");
  const std::string name = "vgpu" + std::to_string(getpid() % 1000);
  if (Program("/bin/bash", {nodes, "up", name}).wait().code != 0) {
    GTEST_SKIP() << "this machine has no two nodes (root, iproute2)";
  }
  // Each node has one device: ranks 0 and 1 both use device 0, of different hosts.
  const Outcome o = on_vgpu({"/bin/bash",
                             nodes,
                             "run",
                             name,
                             "mpirun",
                             "--allow-run-as-root",
                             "-n",
                             "2",
                             "--host",
                             name + "a:1,10.77.0.2:1",
                             "--bind-to",
                             "none",
                             "-x",
                             "VGPU_RUN",
                             "-x",
                             "VGPU_TWIN",
                             "-x",
                             "LD_LIBRARY_PATH",
                             vgpu_program("vgpu_ranks"),
                             "collectives_are_right"});
  Program("/bin/bash", {nodes, "down", name}).wait();
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_NE(o.out.find("rank 0 done"), std::string::npos);
  EXPECT_NE(o.out.find("rank 1 done"), std::string::npos);
}

}  // namespace
}  // namespace weft::test
