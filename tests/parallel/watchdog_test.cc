#include "parallel/watchdog/watchdog.h"

#include <gtest/gtest.h>

#include "parallel/comm/mesh.h"
#include "parallel/comm/self_comm.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {

// Not in the anonymous namespace: local functions have no name at run time.
__attribute__((noinline)) void wait_until(const std::atomic<bool>& done) {
  while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

namespace {

RankSight sight(int rank, const std::string& call, double seconds, double silent = 0) {
  return {.rank = rank,
          .seen = true,
          .last = {.rank = rank,
                   .beat = 7,
                   .coordinates = "data " + std::to_string(rank),
                   .host = "node1",
                   .pid = 100 + rank,
                   .place = "step 3, backward of layer 5",
                   .call = call,
                   .seconds = seconds,
                   .stack = {}},
          .silent = silent};
}

TEST(WaitingReport, NamesTheSilentBeforeTheBusyAndCountsThoseThatWait) {
  std::vector<RankSight> ranks = {sight(0, "all_reduce over data", 12),
                                  sight(1, "", 13),
                                  sight(2, "all_reduce over data", 12),
                                  sight(3, "", 2, 11),
                                  {.rank = 4}};
  ranks[1].last.stack = "Moe::forward < Block::forward";
  EXPECT_EQ(
      waiting_report(0, ranks, 3),
      "rank 0 (data 0) on node1, pid 100 has waited 12.0 s in all_reduce over data, step 3, "
      "backward of layer 5\n"
      "  3 ranks are not waiting, which the others wait for:\n"
      "    rank 4: no sign of life yet\n"
      "    rank 3 (data 3) on node1, pid 103: no sign of life for 11.0 s; last in step 3, "
      "backward of layer 5\n"
      "    rank 1 (data 1) on node1, pid 101: in no call for 13.0 s, step 3, backward of layer "
      "5, in Moe::forward < Block::forward\n"
      "  1 rank more waits in all_reduce over data, step 3, backward of layer 5: 2");
}

TEST(WaitingReport, RanksThatAllWaitDisagree) {
  const std::string text =
      waiting_report(1, {sight(0, "barrier over data", 9), sight(1, "all_gather over data", 9)}, 3);
  EXPECT_NE(text.find("all ranks wait: they disagree"), std::string::npos) << text;
  EXPECT_NE(text.find("run.check_collectives=true"), std::string::npos) << text;
  EXPECT_NE(text.find("1 rank more waits in barrier over data"), std::string::npos) << text;
}

TEST(WaitingReport, StaysShortWithThousandsOfRanks) {
  std::vector<RankSight> ranks;
  for (int r = 0; r < 4096; ++r) ranks.push_back(sight(r, r % 2 ? "" : "barrier over world", 9));
  const std::string text = waiting_report(0, ranks, 3);
  EXPECT_LT(text.size(), 2000u);
  EXPECT_NE(text.find("and 2040 more"), std::string::npos) << text;
  EXPECT_NE(text.find("2047 ranks more wait in barrier over world"), std::string::npos) << text;
}

// A rank that writes to a slow disk makes progress; one that waits, or is silent, does not.
TEST(Watchdog, SeesWhetherSomebodyGetsOn) {
  const RankSight waits = sight(0, "all_gather over world", 900);
  EXPECT_TRUE(somebody_gets_on({waits, sight(1, "", 2)}, 600));
  EXPECT_TRUE(somebody_gets_on({waits, sight(1, "", 2, 597)}, 600));
  EXPECT_FALSE(somebody_gets_on({waits, sight(1, "", 2, 598)}, 600));
  EXPECT_FALSE(somebody_gets_on({waits, sight(1, "", 600)}, 600));
  EXPECT_FALSE(somebody_gets_on({waits, sight(1, "barrier over world", 2)}, 600));
  EXPECT_FALSE(somebody_gets_on({waits, {.rank = 1}}, 600));
}

TEST(HeartbeatFile, IsReadBackAndRemovedAtTheEnd) {
  const ScratchFolder folder;
  const std::string beats = folder / "beats";
  EXPECT_FALSE(read_heartbeat(beats, 2));
  {
    const HeartbeatFile file(beats, 2);
    EXPECT_FALSE(read_heartbeat(beats, 2));  // still empty
    Heartbeat h = sight(2, "all_reduce over data", 1.5).last;
    h.stack = std::string(5000, 'x');
    file.write(h);
    h = sight(2, "", 0.25).last;  // shorter than the one before
    h.beat = 8;
    file.write(h);
    const auto read = read_heartbeat(beats, 2);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->beat, 8);
    EXPECT_EQ(read->coordinates, "data 2");
    EXPECT_EQ(read->place, "step 3, backward of layer 5");
    EXPECT_EQ(read->call, "");
    EXPECT_EQ(read->stack, "");
    EXPECT_EQ(read->seconds, 0.25);
    // A reader ignores a file that is half new and half old.
    std::string torn = get_file(heartbeat_path(beats, 2));
    torn.replace(torn.find("beat 8"), 6, "beat 9");
    put_file(heartbeat_path(beats, 2), torn);
    EXPECT_FALSE(read_heartbeat(beats, 2));
  }
  EXPECT_FALSE(std::filesystem::exists(beats));
}

TEST(HeartbeatFile, AFolderThatCannotBeWrittenIsNoReasonToStop) {
  const HeartbeatFile file("/dev/null/beats", 0);
  file.write(sight(0, "", 1).last);
  EXPECT_FALSE(read_heartbeat("/dev/null/beats", 0));
}

// Two ranks as threads: the first waits in a collective that the second never calls.
TEST(Watchdog, NamesTheOneThatIsMissingAndThenGivesUp) {
  const ScratchFolder folder;
  const WatchdogOptions options{folder / "beats", 0.3, 0.9};
  std::atomic<bool> done = false;
  std::string said;
  const auto rank = [&](int r, Activity& activity) {
    const Watchdog dog(
        options, {r, 2, "data " + std::to_string(r)}, activity,
        [&, r](const std::string& text) { said += std::to_string(r) + " says: " + text + "\n"; },
        [&] { done = true; });
    wait_until(done);
  };
  Activity first, second;
  first.at(4, "");
  first.at("backward", 6);
  first.enter("data", "all_reduce", std::chrono::steady_clock::now());
  second.at(4, "");
  second.at("forward", 2);
  std::thread other([&] { rank(1, second); });
  rank(0, first);
  other.join();
  EXPECT_NE(said.find("0 says: rank 0 (data 0)"), std::string::npos) << said;
  EXPECT_NE(said.find("s in all_reduce over data, step 4, backward of layer 6, called from "
                      "test::wait_until"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("which the others wait for:\n    rank 1 (data 1)"), std::string::npos)
      << said;
  EXPECT_NE(said.find("step 4, forward of layer 2, in test::wait_until"), std::string::npos)
      << said;
  EXPECT_NE(said.find("longer than run.watchdog_seconds = 0.9"), std::string::npos) << said;
  EXPECT_EQ(said.find("1 says"), std::string::npos) << said;
}

TEST(Activity, FollowsTheCallsOfACommunicator) {
  CommTally tally;
  TracedComm comm(std::make_unique<SelfComm>("self"), "data", tally);
  EXPECT_EQ(tally.activity().now().calls, 0);
  EXPECT_EQ(place_text(tally.activity().now()), "starting");
  comm.hosts().barrier();
  EXPECT_EQ(tally.activity().now().calls, 1);
  EXPECT_EQ(tally.activity().now().call, nullptr);
  EXPECT_STREQ(tally.activity().now().axis, "data");
  tally.activity().at(12, "");
  EXPECT_EQ(place_text(tally.activity().now()), "step 12");
  tally.activity().at("forward", 0);
  EXPECT_EQ(place_text(tally.activity().now()), "step 12, forward of layer 0");
}

}  // namespace
}  // namespace weft::test
