// A run outlives what it prints to; a command whose product is its output does not pretend.
#include <fcntl.h>
#include <unistd.h>

#include "tests/support/mpirun_fixture.h"

namespace weft::test {
namespace {

class Console : public Mpirun {
 protected:
  // The program with its standard output connected otherwise, by a shell.
  Outcome with_output(const std::string& where, const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"-c", "weft=$1; shift; \"$weft\" \"$@\" " + where, "sh",
                                    weft_program()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Program("/bin/sh", all).wait();
  }
};

TEST_F(Console, ARunGoesOnWhereNobodyCanReadItAndKeepsItsLinesInTheLog) {
  ASSERT_EQ(run_weft(train("seen")).code, 0);
  for (const std::string where : {"> /dev/full", "> /dev/full 2>&1", "| true"}) {
    const std::string run = "run" + std::to_string(where.size());
    const Outcome o = with_output(where, train(run));
    EXPECT_EQ(o.code, 0) << where << o.err;
    EXPECT_EQ(losses(run), losses("seen"));
    const std::string log = get_file(folder / (run + "/log.txt"));
    EXPECT_NE(log.find("standard output cannot be written"), std::string::npos) << where << log;
    EXPECT_NE(log.find("step     4/4  loss"), std::string::npos) << log;
  }
}

TEST_F(Console, InterruptionsWithoutEndAreNoReasonToStop) {
  std::vector<std::string> arguments = train("run");
  arguments.insert(arguments.end(), {"--fault", "0:1:call=write:EINTR:1+:lines"});
  const Outcome o = with_output("> " + (folder / "lines"), arguments);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(losses("run").size(), 4u);
  const std::string log = get_file(folder / "run/log.txt");
  EXPECT_NE(log.find("step     4/4  loss"), std::string::npos) << log;
}

TEST_F(Console, ACommandWhoseTextDidNotArriveSaysSo) {
  ASSERT_EQ(run_weft(train("run")).code, 0);
  const std::vector<std::vector<std::string>> commands = {
      {"generate", "--checkpoint", folder / "run", "--prompt", "a", "--tokens", "4"},
      {"checkpoint", "inspect", folder / "run"},
      {"info"},
      {"--help"}};
  for (const auto& command : commands) {
    const Outcome o = with_output("> /dev/full", command);
    EXPECT_EQ(o.code, 3) << command[0] << o.err;
    EXPECT_NE(o.err.find("standard output could not be written: "), std::string::npos) << o.err;
  }
}

TEST_F(Console, CommandsSayWhichStepOfWhichRunTheyTake) {
  ASSERT_EQ(run_weft(train("run")).code, 0);
  const std::string run = nlohmann::json::parse(get_file(folder / "run/run.json"))["run"];
  const std::vector<std::vector<std::string>> commands = {
      {"generate", "--checkpoint", folder / "run", "--prompt", "a", "--tokens", "2"},
      {"eval", "perplexity", "--checkpoint", folder / "run", "--data", folder / "corpus"},
      {"convert", "export", folder / "run", folder / "hf"}};
  for (const auto& command : commands) {
    const Outcome o = run_weft(command);
    EXPECT_EQ(o.code, 0) << command[0] << o.err;
    EXPECT_NE(o.err.find("takes step 4 of run " + run), std::string::npos) << command[0] << o.err;
  }
}

}  // namespace
}  // namespace weft::test
