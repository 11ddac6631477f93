// Content of a run's folder during training: background saves, heartbeats, the lock.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/checkpoint/checkpoint_lookup.h"
#include "launcher/train/saves.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/watchdog/heartbeat.h"
#include "tests/support/mpirun_fixture.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

class RunFolder : public Mpirun {
 protected:
  // A rank waits at `at` until the file is there.
  Program start_slow(const std::string& at, std::vector<std::string> arguments) {
    arguments.push_back("--fault=" + at + "=" + until);
    return {in_project("launcher/run"), on_ranks(2, arguments)};
  }
  std::string checkpoints(const std::string& run) { return checkpoint_folder(folder / run); }

  const std::string until = folder / "until";  // created to let the slow rank continue
};

// Rank 1 stalls in the file of step 2 until two more steps are taken.
TEST_F(RunFolder, StepsAreTakenWhileASaveIsUnderWay) {
  const auto five_steps = [&](const std::string& run) {
    return train(run, {"train.steps=5", "run.checkpoint_every=2", "run.keep=3"});
  };
  Program program = start_slow("1:2:written:slow", five_steps("slow"));
  ASSERT_TRUE(program.wait_until([&] { return losses("slow").size() == 4; }))
      << program.err_so_far();
  EXPECT_TRUE(fs::exists(writing_path(checkpoints("slow"), 2)));
  EXPECT_TRUE(published_checkpoints(checkpoints("slow")).empty());
  put_file(until, "");
  const Outcome o = program.wait();
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(run_ranked(2, five_steps("quick")).code, 0);
  EXPECT_EQ(losses("slow"), losses("quick"));
  for (const int64_t step : {2, 4, 5}) {
    for (int rank = 0; rank < 2; ++rank) {
      const auto file = [&](const std::string& run) {
        return get_file(checkpoint_path(checkpoints(run), step) + "/" + rank_file(rank));
      };
      EXPECT_FALSE(file("slow").empty());
      EXPECT_TRUE(file("slow") == file("quick")) << "step " << step << ", rank " << rank;
    }
  }
}

TEST_F(RunFolder, ASecondRunTouchesNothingOfTheFirst) {
  Program first = start_slow("0:3:slow", train("run"));
  const std::string heartbeats = folder / "run/heartbeats";
  const auto beats = [&] {
    std::vector<Heartbeat> all;
    for (int rank = 0; rank < 2; ++rank) {
      if (const auto one = read_heartbeat(heartbeats, rank)) all.push_back(*one);
    }
    return all;
  };
  ASSERT_TRUE(first.wait_until([&] { return losses("run").size() == 2 && beats().size() == 2; }));
  const std::vector<Heartbeat> before = beats();
  const Outcome second = run_ranked(2, train("run"));
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("another run is writing there"), std::string::npos) << second.err;
  // The first run's ranks are still alive, by their heartbeats.
  EXPECT_TRUE(first.wait_until([&] {
    const std::vector<Heartbeat> now = beats();
    return now.size() < 2 || (now[0].beat > before[0].beat && now[1].beat > before[1].beat);
  }));
  const std::vector<Heartbeat> now = beats();
  ASSERT_EQ(now.size(), 2u);
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(now[rank].pid, before[rank].pid);
  put_file(until, "");
  EXPECT_EQ(first.wait().code, 0);
  EXPECT_EQ(losses("run").size(), 4u);
}

TEST_F(RunFolder, FilesOfAKilledJobAreRemovedByTheNextOneWhichSaysSo) {
  ASSERT_EQ(run_ranked(2, train("run", {"train.steps=2"})).code, 0);
  const std::string half = checkpoints("run") + "/.writing-step-000000001";
  const std::string shared = "/dev/shm/weft-job-999999999-" + std::to_string(getpid());
  for (const std::string& left : {half, folder / "run/heartbeats", shared}) {
    fs::create_directories(left);
    put_file(left + "/rank-000005", "half of it");
  }
  const Outcome o = run_ranked(2, train("run", {"train.steps=3"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("what a killed job left in " + (folder / "run") +
                       ": 1 heartbeat, checkpoints/.writing-step-000000001"),
            std::string::npos)
      << o.out;
  EXPECT_FALSE(fs::exists(half));
  EXPECT_FALSE(fs::exists(folder / "run/heartbeats"));
  EXPECT_FALSE(fs::exists(shared));  // by this job, or by another that started meanwhile
}

TEST_F(RunFolder, NoRankOutlivesALauncherThatIsKilled) {
  Program program(in_project("launcher/run"), on_ranks(2, train("run", {"train.steps=100000"})));
  const std::string heartbeats = folder / "run/heartbeats";
  std::vector<int64_t> ranks;
  ASSERT_TRUE(program.wait_until([&] {
    ranks.clear();
    for (int rank = 0; rank < 2; ++rank) {
      if (const auto one = read_heartbeat(heartbeats, rank)) ranks.push_back(one->pid);
    }
    return ranks.size() == 2;
  }));
  program.signal(SIGKILL);
  program.wait();
  for (const int64_t pid : ranks) {
    const std::string process = "/proc/" + std::to_string(pid);
    for (int tries = 0; fs::exists(process) && tries < 3000; ++tries) usleep(20000);
    EXPECT_FALSE(fs::exists(process)) << pid;
  }
  EXPECT_EQ(run_ranked(2, train("run", {"train.steps=1"})).code, 0);  // the folder is free again
}

// That all ranks stop, or have saved, at the same step takes no collective call of its own: rank 0
// would wait here for ever.
TEST(Saves, LearnFromTheStatusOfAStepAlone) {
  const ScratchFolder folder;
  Config config;
  config.run.dir = folder / "run";
  run_ranks(2, [&](ThreadComm& world, Exec& exec) {
    if (world.rank() != 0) return;
    Saves saves(config, exec, world.hosts(), {[](const auto&) {}, [](const auto&) {}});
    EXPECT_EQ(saves.status(true), (std::vector<int64_t>{1, 0}));
    EXPECT_FALSE(saves.after_step(std::vector<int64_t>{0, 0}));
    EXPECT_TRUE(saves.after_step(std::vector<int64_t>{1, 0})) << "the other one was asked";
  });
}

}  // namespace
}  // namespace weft::test
