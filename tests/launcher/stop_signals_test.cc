// Every stop signal to a job on several ranks: all ranks save at the same step, code 75, and the
// resumed run has the bits of an uninterrupted one.
#include <signal.h>

#include <fmt/format.h>

#include <map>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "tests/support/mpirun_fixture.h"

namespace weft::test {
namespace {

class StopSignals : public Mpirun {
 protected:
  std::vector<std::string> nine_steps(const std::string& run) {
    return train(run, {"train.steps=9", "train.log_every=1", "train.precision=bf16"});
  }
  std::string files(const std::string& run) {
    std::string bytes;
    for (int rank = 0; rank < 2; ++rank) {
      bytes +=
          get_file(checkpoint_path(folder / (run + "/checkpoints"), 9) + "/" + rank_file(rank));
    }
    return bytes;
  }
};

TEST_F(StopSignals, EndAllRanksWithCode75AndLoseNothing) {
  ::signal(SIGINT, SIG_DFL);  // a shell's background jobs ignore it, which children inherit
  ASSERT_EQ(run_ranked(2, nine_steps("whole")).code, 0);
  for (const auto& [step, number] : std::map<int, int>{{2, SIGTERM}, {4, SIGINT}, {6, SIGUSR1}}) {
    std::vector<std::string> arguments = nine_steps("parts");
    arguments.push_back(fmt::format("--fault=0:{}:asked", step + 1));
    Program program(in_project("launcher/run"), on_ranks(2, arguments));
    ASSERT_TRUE(program.wait_for(fmt::format(" {}/9  loss", step)));
    program.signal(number);
    const Outcome o = program.wait();
    EXPECT_EQ(o.code, 75) << o.out << o.err;
    EXPECT_NE(o.out.find("stopped on request after step"), std::string::npos) << o.out;
  }
  ASSERT_EQ(run_ranked(2, nine_steps("parts")).code, 0);
  EXPECT_EQ(losses("whole"), losses("parts"));
  EXPECT_TRUE(files("whole") == files("parts")) << "weights or moments differ";
}

}  // namespace
}  // namespace weft::test
