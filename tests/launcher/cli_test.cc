#include "launcher/app/cli.h"

#include <signal.h>

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launcher/app/abort.h"
#include "launcher/app/unsupported.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace weft {
namespace {

using test::Outcome;

// Runs the built program with arguments separated by spaces.
Outcome weft_program(const std::string& arguments) {
  std::vector<std::string> list;
  std::istringstream words(arguments);
  for (std::string word; words >> word;) list.push_back(word);
  return test::run_weft(list);
}

TEST(Program, AnswersHelpAndVersion) {
  const Outcome help = weft_program("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("Example"), std::string::npos);
  const Outcome version = weft_program("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("weft "));
}

TEST(Program, ShowsAnExampleInTheHelpOfEveryCommand) {
  const std::string help = weft_program("--help").out;
  std::vector<std::string> names;
  bool listing = false;
  size_t begin = 0;
  while (begin < help.size()) {
    const size_t end = std::min(help.find('\n', begin), help.size());
    const std::string line = help.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("Subcommands:"))
      listing = true;
    else if (!line.starts_with("  "))
      listing = false;
    else if (listing && line[2] != ' ')
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) {
    const Outcome o = weft_program(name + " --help");
    EXPECT_EQ(o.code, 0) << name;
    EXPECT_NE(o.out.find("Example"), std::string::npos) << name;
  }
}

TEST(Program, RefusesWhatItDoesNotKnowWithTheNearest) {
  const Outcome command = weft_program("inof");
  EXPECT_EQ(command.code, 2);
  EXPECT_EQ(command.err, "weft: weft has no command 'inof'; nearest: 'info' (see weft --help)\n");
  const Outcome option = weft_program("info --jsno");
  EXPECT_EQ(option.code, 2);
  EXPECT_EQ(option.err,
            "weft: weft info has no option '--jsno'; nearest: '--json' (see weft info --help)\n");
  EXPECT_EQ(weft_program("").code, 2);
  EXPECT_EQ(weft_program("info extra").code, 2);
  EXPECT_EQ(weft_program("info --mixers no_such_mixer").code, 2);
}

TEST(Info, GivesJsonWithEveryPromisedKey) {
  const Outcome o = weft_program("info --json");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.err, "");
  const auto json = nlohmann::json::parse(o.out);
  for (const char* key :
       {"version", "revision", "build", "instruction_sets", "instruction_set", "cores", "memory",
        "mpi", "hdf5", "cuda", "nccl", "transformer_engine", "mixers", "routers", "schedules"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["hdf5"]["threadsafe"], true) << "Debian's is";
  EXPECT_EQ(json["instruction_sets"][0], "plain");
  EXPECT_GE(json["cores"].get<int>(), 1);
  const std::vector<std::string> routers = json["routers"];
  EXPECT_NE(std::find(routers.begin(), routers.end(), "softmax"), routers.end());
}

// A command that ends in the way its argument names, to check exit codes.
void add_ending(CLI::App& app) {
  CLI::App* command = app.add_subcommand("ending", "For tests");
  auto how = std::make_shared<std::string>();
  command->add_option("HOW", *how)->required();
  command->callback([how] {
    if (*how == "user") throw ConfigError("a mistake");
    if (*how == "failed") throw Error("a failure");
    if (*how == "memory") throw std::bad_alloc();
    if (*how == "stopped") throw CLI::RuntimeError(kExitStopped);
  });
}

void add_reading(CLI::App& app) {
  CLI::App* command = app.add_subcommand("reading", "For tests");
  auto args = add_config_arguments(*command);
  command->callback([args] {
    if (!args->explained()) args->load();
  });
}

int run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "weft");
  return run_program(static_cast<int>(arguments.size()), arguments.data(),
                     {add_ending, add_reading});
}

std::string said_by(const std::vector<const char*>& arguments, int code) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(arguments), code);
  return testing::internal::GetCapturedStderr();
}

TEST(ExitCode, TellsMistakesFailuresAndStopsApart) {
  EXPECT_EQ(said_by({"ending", "well"}, 0), "");
  EXPECT_EQ(said_by({"ending", "user"}, 2), "weft: a mistake\n");
  EXPECT_EQ(said_by({"ending", "failed"}, 3), "weft: a failure\n");
  EXPECT_NE(said_by({"ending", "memory"}, 3).find("out of memory"), std::string::npos);
  EXPECT_EQ(said_by({"ending", "stopped"}, 75), "");
  EXPECT_NE(said_by({"ending"}, 2).find("HOW is required"), std::string::npos);
}

const std::string kTiny = test::in_project("configs/tiny.toml");

TEST(ConfigArguments, ReadFileOverridesAndQuestions) {
  EXPECT_EQ(said_by({"reading", kTiny.c_str(), "train.steps=20", "data.train=[\"a\", \"b\"]"}, 0),
            "");
  EXPECT_EQ(said_by({"reading", kTiny.c_str(), "train.step=20"}, 2),
            "weft: command line: [train] has no key 'step'; nearest: train.steps "
            "(weft train --explain all)\n");
  EXPECT_NE(said_by({"reading"}, 2).find("no config file"), std::string::npos);
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"reading", "--explain", "train.steps"}), 0);
  EXPECT_TRUE(testing::internal::GetCapturedStdout().starts_with("train.steps\n"));
  EXPECT_NE(said_by({"reading", "--explain", "train.step"}, 2).find("nearest: 'train.steps'"),
            std::string::npos);
}

TEST(MixerNames, AreCheckedWithTheNearest) {
  const Config config = load_config(kTiny, {"model.layer.L.mixer=retnett"});
  try {
    check_mixer_names(config, {"softmax", "retnet", "bla"});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_STREQ(
        e.what(),
        "command line: model.layer.L.mixer = \"retnett\" is not a mixer; nearest: 'retnet' "
        "(weft info --mixers)");
  }
}

TEST(Unbuilt, RefusesKeysThatWouldBeIgnored) {
  EXPECT_NO_THROW(refuse_unbuilt(load_config(kTiny)));
  EXPECT_THROW(refuse_unbuilt(load_config(kTiny, {"run.device=cuda"})), ConfigError);
}

TEST(StopRequest, IsRaisedBySignalsWhileItLives) {
  {
    const StopRequest stop;
    EXPECT_FALSE(stop.requested());
    raise(SIGUSR1);
    EXPECT_TRUE(stop.requested());
  }
  const StopRequest again;
  EXPECT_FALSE(again.requested());
  raise(SIGTERM);
  EXPECT_TRUE(again.requested());
}

TEST(Located, NamesRankPlaceAndWork) {
  EXPECT_EQ(located({5, "pipe 1, data 0", "forward of micro-batch 3"}, "it broke"),
            "rank 5 (pipe 1, data 0), forward of micro-batch 3:\n  it broke");
  EXPECT_EQ(located({}, "it broke"), "rank 0:\n  it broke");
}

TEST(Program, SaysThatANumberIsTooSmallInOneLine) {
  for (const char* value : {"0", "-3"}) {
    const test::Outcome o = test::run_weft({"bench", "mixer", "--mixer", "gla", "--seq", value});
    EXPECT_EQ(o.code, 2);
    EXPECT_NE(o.err.find(std::string("--seq: ") + value + " is too small; give a positive number"),
              std::string::npos)
        << o.err;
  }
}

}  // namespace
}  // namespace weft
