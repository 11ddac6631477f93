// Ranks that fail, hang, halt or are killed: the messages name them, and the others end.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "parallel/watchdog/heartbeat.h"
#include "tests/support/mpirun_fixture.h"

namespace weft::test {
namespace {

constexpr int kRanks = 3;

class Faults : public Mpirun {
 protected:
  // Rank 1 fails before step 3.
  Outcome drill(const std::string& kind, const std::vector<std::string>& more = {}) {
    // Many times what a step takes, also on a machine that does much else.
    std::vector<std::string> arguments = {"run.slow_seconds=2", "run.watchdog_seconds=10",
                                          "--fault=1:3" + kind};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_ranked(kRanks, train("drill", arguments));
  }

  Outcome slow(const std::string& at, int times, const std::vector<std::string>& more);

  Heartbeat heartbeat(int rank) const {
    const auto found = read_heartbeat(folder / "drill/heartbeats", rank);
    EXPECT_TRUE(found) << "rank " << rank;
    return found.value_or(Heartbeat{});
  }

  // Zombies do not count.
  static bool runs(int64_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    return stat >> number >> name >> state && state != "Z" && state != "X";
  }

  // A process that was killed may need a moment to give its memory back.
  void expect_nobody_left() const {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int r = 0; r < kRanks; ++r) {
      const int64_t pid = heartbeat(r).pid;
      while (runs(pid) && std::chrono::steady_clock::now() < patience) usleep(20000);
      EXPECT_FALSE(runs(pid)) << "rank " << r;
    }
  }

  static void expect_says(const Outcome& o, const std::string& text) {
    EXPECT_NE(o.err.find(text), std::string::npos) << o.err;
  }
};

TEST_F(Faults, AnExceptionNamesRankPlaceAndStepAndEndsAllWithCode3) {
  const Outcome o = drill("");
  EXPECT_EQ(o.code, 3) << o.err;
  expect_says(o, "rank 1 (pipe 0, data 1, sequence 0, tensor 0), step 3:\n  injected");
}

TEST_F(Faults, AnExceptionInsideAStepNamesTheLayer) {
  for (const auto& [at, doing] : {std::pair{"1:2:backward:1", "step 2, backward of layer 1"},
                                  std::pair{"0:3:forward:0", "step 3, forward of layer 0"}}) {
    const Outcome o = run_ranked(2, train("drill", {std::string("--fault=") + at}));
    EXPECT_EQ(o.code, 3) << o.err;
    const std::string rank(1, at[0]);
    expect_says(o, "rank " + rank + " (pipe 0, data " + rank + ", sequence 0, tensor 0), " + doing +
                       ":\n  injected: --fault " + at);
  }
}

TEST_F(Faults, ARankThatHangsIsNamedWithTheCallItSitsInAndAllEnd) {
  const Outcome o = drill(":hang");
  EXPECT_EQ(o.code, 3) << o.err;
  // The message names the waiting rank and its call.
  expect_says(o, "rank 0 (pipe 0, data 0, sequence 0, tensor 0) on ");
  expect_says(o, "s in gather over data, step 3, called from ");
  expect_says(o, "Trainer::step");
  // For whom, and what that one does.
  expect_says(o,
              "one rank is not waiting, which the others wait for:\n    rank 1 (pipe 0, data 1,");
  expect_says(o, "step 3, in Fault::");
  expect_says(o, "1 rank more waits in gather over data, step 3: 2");
  expect_says(o, "longer than run.watchdog_seconds = 10: all ranks are ended");
  expect_nobody_left();
}

TEST_F(Faults, AHaltedProcessIsNamedByItsSilence) {
  const Outcome o = drill(":stopped");
  EXPECT_EQ(o.code, 3) << o.err;
  const std::string pid = std::to_string(heartbeat(1).pid);
  expect_says(o, "rank 1 (pipe 0, data 1, sequence 0, tensor 0) on " + heartbeat(1).host +
                     ", pid " + pid + ": no sign of life for ");
  expect_nobody_left();
}

// It is slow until the others have spoken of it `times` times: after 1, 2, 4, ... seconds.
Outcome Faults::slow(const std::string& at, int times, const std::vector<std::string>& more) {
  const std::string until = folder / "until";
  std::vector<std::string> arguments = {"run.slow_seconds=1", "--fault=" + at + "=" + until};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Program program(in_project("launcher/run"), on_ranks(kRanks, train("drill", arguments)));
  program.wait_until([&] {
    const std::string said = program.err_so_far(),
                      words = "which the others wait for:\n    rank 1 (";
    int count = 0;
    for (size_t i = 0; (i = said.find(words, i)) != std::string::npos; ++i) ++count;
    return count >= times;
  });
  put_file(until, "");
  return program.wait();
}

TEST_F(Faults, ASlowRankIsNamedAndTheRunGoesOn) {
  const Outcome o = slow("1:3:slow", 1, {});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_says(o, "which the others wait for:\n    rank 1 (pipe 0, data 1,");
  EXPECT_EQ(o.err.find("are ended"), std::string::npos) << o.err;
  EXPECT_EQ(losses("drill").size(), 4u);
  EXPECT_FALSE(std::filesystem::exists(folder / "drill/heartbeats"));  // no rank is left to beat
}

// A save longer than run.watchdog_seconds, in the foreground, during which bytes are written: the
// others wait, say so (the fourth time after 8 seconds), and no rank is killed.
TEST_F(Faults, ASlowSaveIsNamedAndNoReasonToEndTheJob) {
  const Outcome o =
      slow("1:2:written:slow", 4,
           {"run.checkpoint_every=2", "run.background_save=false", "run.watchdog_seconds=5"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_says(o, "step 2, saving");
  EXPECT_EQ(o.err.find("are ended"), std::string::npos) << o.err;
  EXPECT_EQ(losses("drill").size(), 4u);
}

TEST_F(Faults, AKilledRankIsNamedAndTheOthersStop) {
  Program program(in_project("launcher/run"),
                  on_ranks(kRanks, train("drill", {"train.steps=100000"})));
  ASSERT_TRUE(program.wait_for("3/100000  loss"));
  kill(static_cast<pid_t>(heartbeat(1).pid), SIGKILL);
  const Outcome o = program.wait();  // the watchdog would take ten minutes
  EXPECT_EQ(o.code, 3) << o.err;
  expect_says(o, "launcher/run: lost rank 1 on " + heartbeat(1).host + ": signal 9 (Killed)");
  expect_says(o, "a rank was lost");
  expect_nobody_left();
}

}  // namespace
}  // namespace weft::test
