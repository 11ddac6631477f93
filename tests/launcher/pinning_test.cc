// Ranks on separate cores, as reported by the system.
#include <sched.h>
#include <signal.h>

#include <fstream>
#include <set>

#include "parallel/watchdog/heartbeat.h"
#include "tests/support/mpirun_fixture.h"

namespace weft::test {
namespace {

// Parses a list such as "0-3,8,10-11".
std::set<int> cores_in(const std::string& list) {
  std::set<int> cores;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const int first = std::stoi(part),
              last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
    for (int core = first; core <= last; ++core) cores.insert(core);
  }
  return cores;
}

constexpr const char* kList = "Cpus_allowed_list:";

class Pinning : public Mpirun {
 protected:
  void SetUp() override {
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    if (CPU_COUNT(&set) < 2) GTEST_SKIP() << "one core cannot be shared out";
  }

  static void expect_apart(const std::vector<std::set<int>>& ranks) {
    ASSERT_EQ(ranks.size(), 2u);
    std::set<int> both = ranks[0];
    both.insert(ranks[1].begin(), ranks[1].end());
    EXPECT_FALSE(ranks[0].empty() || ranks[1].empty());
    EXPECT_EQ(both.size(), ranks[0].size() + ranks[1].size()) << "ranks have cores in common";
  }
};

TEST_F(Pinning, OfTwoRanksOnOneMachine) {
  const Outcome o =
      Program(in_project("launcher/run"), {"-n", "2", "grep", kList, "/proc/self/status"}).wait();
  ASSERT_EQ(o.code, 0) << o.err;
  std::vector<std::set<int>> ranks;
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) {
    ranks.push_back(cores_in(line.substr(std::string(kList).size())));
  }
  expect_apart(ranks);
}

// Only the nodes of a hostfile know their cores: there ranks pin themselves.
TEST_F(Pinning, OfTwoRanksOnTheNodeOfAHostfile) {
  put_file(folder / "hosts", "localhost slots=2\n");
  std::vector<std::string> arguments = {"--hostfile", folder / "hosts"};
  for (const std::string& a : on_ranks(2, train("pinned", {"train.steps=100000"}))) {
    arguments.push_back(a);
  }
  Program program(in_project("launcher/run"), arguments);
  ASSERT_TRUE(program.wait_for("3/100000  loss"));
  std::vector<std::set<int>> ranks;
  for (int r = 0; r < 2; ++r) {
    const auto rank = read_heartbeat(folder / "pinned/heartbeats", r);
    ASSERT_TRUE(rank);
    std::ifstream status("/proc/" + std::to_string(rank->pid) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(kList))
        ranks.push_back(cores_in(line.substr(std::string(kList).size())));
    }
  }
  expect_apart(ranks);
  program.signal(SIGTERM);
  const Outcome o = program.wait();
  EXPECT_EQ(o.code, 75) << o.err;
}

}  // namespace
}  // namespace weft::test
