// Two nodes on one machine: ranks in two network namespaces that communicate only by TCP.
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "parallel/watchdog/heartbeat.h"
#include "tests/support/mpirun_fixture.h"

namespace weft::test {
namespace {

class TwoNodes : public Mpirun {
 protected:
  void SetUp() override {
    const int code = nodes({"up", name}).code;
    up = code == 0;
    if (code == 77)
      GTEST_SKIP() << "needs root, iproute2 and a kernel that lets it make network namespaces";
    ASSERT_EQ(code, 0);
    put_file(hosts, name + "a slots=1\n10.77.0.2 slots=1\n");
  }
  void TearDown() override {
    if (up) nodes({"down", name});
  }

  static Outcome nodes(const std::vector<std::string>& arguments) {
    return Program(in_project("tests/support/two_nodes"), arguments).wait();
  }
  std::vector<std::string> on_both(const std::vector<std::string>& weft) const {
    std::vector<std::string> all = {
        "run", name,          in_project("launcher/run"), "-n", "2", "--cores", "1", "--hostfile",
        hosts, weft_program()};
    all.insert(all.end(), weft.begin(), weft.end());
    return all;
  }
  int64_t sent() const {  // bytes over the cable, from the first node
    const std::string counter = "/sys/class/net/cable/statistics/tx_bytes";
    return std::stoll(
        Program("/usr/bin/env", {"ip", "netns", "exec", name + "a", "cat", counter}).wait().out);
  }
  // Processes on a node, ranks or not; waits briefly for those that are ending.
  std::string left_on(const char* node) const {
    std::string pids;
    for (int tries = 0; tries < 3000; ++tries) {
      pids = Program("/usr/bin/env", {"ip", "netns", "pids", name + node}).wait().out;
      if (pids.empty()) break;
      usleep(20000);
    }
    return pids;
  }

  const std::string name = "weft" + std::to_string(getpid() % 100000);
  const std::string hosts = folder / "hosts";
  bool up = false;
};

TEST_F(TwoNodes, TrainingOverTcpGivesTheLossesOfOneNode) {
  ASSERT_EQ(run_ranked(2, train("one")).code, 0);
  const int64_t before = sent();
  const Outcome o = nodes(on_both(train("two")));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("2 ranks x 1 threads"), std::string::npos) << o.out;  // as many as cores
  EXPECT_EQ(losses("two"), losses("one"));  // equal layouts give equal bits
  // Each reduces half of the gradients and sends its half of the weights: in 4 steps at least 4
  // times the share of the first rank.
  std::ifstream metrics(folder / "two/metrics.jsonl");
  std::string line;
  std::getline(metrics, line);
  EXPECT_GT(sent() - before, 4 * nlohmann::json::parse(line)["comm_bytes"]["data"].get<int64_t>());
}

TEST_F(TwoNodes, ALostRankOnTheSecondNodeEndsTheJobAndLeavesNoProcess) {
  Program program(in_project("tests/support/two_nodes"),
                  on_both(train("lost", {"train.steps=100000"})));
  ASSERT_TRUE(program.wait_for("3/100000  loss"));
  std::vector<Heartbeat> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.push_back(read_heartbeat(folder / "lost/heartbeats", r).value_or(Heartbeat{}));
  }
  EXPECT_EQ(ranks[0].host, name + "a");
  ASSERT_EQ(ranks[1].host, name + "b");
  kill(static_cast<pid_t>(ranks[1].pid), SIGKILL);
  const Outcome o = program.wait();  // the watchdog would take ten minutes
  EXPECT_EQ(o.code, 3) << o.err;
  EXPECT_NE(o.err.find("lost rank 1 on 10.77.0.2: signal 9 (Killed)"), std::string::npos) << o.err;
  EXPECT_EQ(left_on("a"), "");
  EXPECT_EQ(left_on("b"), "");  // no rank, and nothing of mpirun's either
}

// The link is cut for good while both ranks compute: each waits in a call for what never comes.
TEST_F(TwoNodes, ALinkThatIsCutNamesTheNodeThatDoesNotAnswer) {
  Program program(in_project("tests/support/two_nodes"),
                  on_both(train("cut", {"train.steps=100000", "run.slow_seconds=2",
                                        "run.watchdog_seconds=6"})));
  ASSERT_TRUE(program.wait_for("3/100000  loss"));
  ASSERT_EQ(nodes({"cut", name}).code, 0);
  const Outcome o = program.wait();
  EXPECT_EQ(o.code, 3) << o.err;
  EXPECT_NE(o.err.find("node " + name + "b does not answer " + name + "a"), std::string::npos)
      << o.err;
  EXPECT_EQ(o.err.find("they disagree"), std::string::npos) << o.err;
}

// Everything on the second node ends at once and its link with it, as when the power goes.
TEST_F(TwoNodes, ACrashedNodeIsNamed) {
  Program program(in_project("tests/support/two_nodes"),
                  on_both(train("crash", {"train.steps=100000"})));
  ASSERT_TRUE(program.wait_for("3/100000  loss"));
  ASSERT_EQ(nodes({"crash", name}).code, 0);
  const Outcome o = program.wait();
  EXPECT_EQ(o.code, 3) << o.err;
  EXPECT_NE(o.err.find("lost node 10.77.0.2"), std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("ORTE"), std::string::npos) << o.err;
  EXPECT_EQ(left_on("a"), "");
}

}  // namespace
}  // namespace weft::test
