// `weft train` on several ranks, as a user starts it: real processes under launcher/run and mpirun.
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/mpirun_fixture.h"

namespace weft::test {
namespace {

using nlohmann::json;

TEST_F(Mpirun, LossesDoNotDependOnTheNumberOfRanks) {
  ASSERT_EQ(run_weft(train("one")).code, 0);
  for (const int ranks : {2, 3}) {
    const std::string run = "ranks" + std::to_string(ranks);
    const Outcome o = run_ranked(ranks, train(run, {"run.check_collectives=true"}));
    ASSERT_EQ(o.code, 0) << o.err;
    expect_near(losses(run), losses("one"));
    // Only one rank prints.
    EXPECT_EQ(o.out.find("done   4 steps"), o.out.rfind("done   4 steps")) << o.out;
    EXPECT_NE(o.out.find(std::to_string(ranks) + " ranks x"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("data " + std::to_string(ranks)), std::string::npos) << o.out;
    const json record = json::parse(get_file(folder / (run + "/run.json")));
    EXPECT_EQ(record["layout"]["data"], ranks);
    std::ifstream metrics(folder / (run + "/metrics.jsonl"));
    std::string line;
    std::getline(metrics, line);
    EXPECT_GT(json::parse(line)["comm_bytes"]["data"].get<int64_t>(), 0);
  }
}

// Experts on both ranks; then a checkpoint of that is resumed by one rank that has them all.
TEST_F(Mpirun, ExpertsLiveOnTwoRanks) {
  const std::vector<std::string> two = {"parallel.expert=2", "run.check_collectives=true"};
  ASSERT_EQ(run_weft(train("one")).code, 0);
  const Outcome o = run_ranked(2, train("two", two));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_near(losses("two"), losses("one"));
  const json record = json::parse(get_file(folder / "two/run.json"));
  EXPECT_EQ(record["layout"]["expert"], 2);
  std::ifstream metrics(folder / "two/metrics.jsonl");
  std::string line;
  std::getline(metrics, line);
  EXPECT_GT(json::parse(line)["comm_bytes"]["expert"].get<int64_t>(), 0);
  ASSERT_EQ(run_weft(train("one", {"train.steps=6"})).code, 0);
  ASSERT_EQ(run_weft(train("two", {"train.steps=6"})).code, 0);
  expect_near(losses("two"), losses("one"));
}

TEST_F(Mpirun, StepsAreMeasuredOnTwoRanks) {
  const std::string file = folder / "step.json";
  const Outcome o =
      run_ranked(2, {"bench", "step", in_project("configs/tiny.toml"), "parallel.expert=2",
                     "train.micro_batch=2", "--steps", "2", "--warmup", "1", "--threads", "1",
                     "--versus", "parallel.overlap=false", "--json", file});
  ASSERT_EQ(o.code, 0) << o.err;
  const json result = json::parse(get_file(file));
  EXPECT_EQ(result["ranks"], 2);
  EXPECT_GT(result["comm_bytes"]["expert"].get<int64_t>(), 0);
  EXPECT_GT(result["comm_bytes"]["data"].get<int64_t>(), 0);
  EXPECT_GT(result["comm_share"].get<double>(), 0);
  for (const char* axis : {"expert", "data"}) {
    const json& spent = result["comm_ms"][axis];
    EXPECT_GT(spent["mean"].get<double>(), 0) << axis;
    EXPECT_GE(spent["max"].get<double>(), spent["mean"].get<double>()) << axis;
    EXPECT_LE(spent["max"].get<double>(), 2 * spent["mean"].get<double>() * (1 + 1e-9))
        << "two ranks";
    EXPECT_LT(spent["mean"].get<double>(), result["step_ms"]["q3"].get<double>() * 3) << axis;
  }
  EXPECT_NE(o.out.find("per step, all ranks together"), std::string::npos) << o.out;
  EXPECT_EQ(result["versus"]["same_losses"], true);
  EXPECT_EQ(result["versus"]["ratio"]["repetitions"], 2);
  EXPECT_GT(result["versus"]["ratio"]["median"].get<double>(), 0);
}

TEST_F(Mpirun, StepsAreComparedWithStepsOfTheSameRanksAlone) {
  const Outcome o = run_weft({"bench", "step", in_project("configs/tiny.toml"), "--versus",
                              "parallel.tensor=2", "--steps", "1"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("equal ranks and tokens"), std::string::npos) << o.err;
}

TEST_F(Mpirun, CollectivesAreMeasuredOverEachAxis) {
  const std::string file = folder / "comm.json";
  const std::vector<std::string> quick = {"--largest", "65536",  "--repetitions",
                                          "2",         "--json", file};
  const auto bench = [&](int ranks, std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "comm"});
    more.insert(more.end(), quick.begin(), quick.end());
    return run_ranked(ranks, more);
  };
  const Outcome o = bench(2, {"parallel.tensor=2", "parallel.expert=2"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json result = json::parse(get_file(file));
  std::set<std::string> axes;
  for (const auto& [name, axis] : result["axes"].items()) {
    axes.insert(name);
    EXPECT_EQ(axis["ranks"], 2);
    EXPECT_EQ(axis["sizes"].size(), 3u) << "1, 8 and 64 KiB";
  }
  EXPECT_EQ(axes, (std::set<std::string>{"tensor", "expert"}));
  // Our collectives and MPI's, and both algorithms of an all_reduce on both sides of the switch
  // between them.
  for (const json& size : result["axes"]["tensor"]["sizes"]) {
    for (const char* call : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ring"}) {
      EXPECT_GT(size[call]["median"].get<double>(), 0) << call;
    }
    for (const char* way : {"mpi_all_reduce", "mpi_reduce_scatter", "two_exchanges"}) {
      EXPECT_GT(size["over_ours"][way]["median"].get<double>(), 0) << way;
    }
  }
  EXPECT_EQ(bench(2, {"parallel.tensor=3"}).code, 2);
  EXPECT_EQ(bench(2, {"train.steps=3"}).code, 2) << "without a config, degrees alone";
  EXPECT_EQ(bench(2, {in_project("configs/tiny.toml"), "parallel.sequence=2"}).code, 0);
  EXPECT_TRUE(json::parse(get_file(file))["axes"].contains("sequence"));
}

// Sums and weights of data ranks, rows of experts with a shared one, sums of tensor ranks. A
// checkpoint during the run completes the pending gathering of weights.
TEST_F(Mpirun, TheSameLayoutGivesTheSameBitsWithOverlapAndWithout) {
  const std::vector<std::vector<std::string>> layouts = {
      {"run.checkpoint_every=2"},
      {"parallel.expert=2", "model.moe.shared=1", "run.check_collectives=true"},
      {"parallel.tensor=2", "train.precision=bf16"}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::string on = "on" + std::to_string(i), off = "off" + std::to_string(i);
    std::vector<std::string> without = layouts[i];
    without.push_back("parallel.overlap=false");
    const Outcome o = run_ranked(2, train(on, layouts[i]));
    ASSERT_EQ(o.code, 0) << o.err;
    ASSERT_EQ(run_ranked(2, train(off, without)).code, 0);
    EXPECT_EQ(losses(on), losses(off)) << i;
  }
}

TEST_F(Mpirun, ACheckpointOfTwoRanksIsResumedByOneAndByThree) {
  ASSERT_EQ(run_weft(train("whole", {"train.steps=5"})).code, 0);
  ASSERT_EQ(run_ranked(2, train("a", {"train.steps=5", "run.checkpoint_every=3"})).code, 0);
  for (const int ranks : {1, 3}) {
    const std::string run = "resumed" + std::to_string(ranks);
    std::filesystem::copy(folder / "a", folder / run, std::filesystem::copy_options::recursive);
    std::filesystem::remove_all(folder / (run + "/checkpoints/step-000000005"));
    const Outcome o = run_ranked(ranks, train(run, {"train.steps=5"}));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.out.find("after step 3"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find(fmt::format("ranks 2 -> {}", ranks)), std::string::npos) << o.out;
    expect_near(losses(run), losses("whole"));
  }
}

// Tensor ranks alone, and with sequence ranks; any layout reads their checkpoint.
TEST_F(Mpirun, TensorRanksGiveTheSameLossesAndCheckpoints) {
  ASSERT_EQ(run_weft(train("one", {"train.steps=5"})).code, 0);
  const Outcome two =
      run_ranked(2, train("two", {"train.steps=5", "run.checkpoint_every=3", "parallel.tensor=2",
                                  "run.check_collectives=true"}));
  ASSERT_EQ(two.code, 0) << two.err;
  expect_near(losses("two"), losses("one"));
  std::filesystem::remove_all(folder / "two/checkpoints/step-000000005");
  for (const int ranks : {1, 4}) {
    const std::string run = "resumed" + std::to_string(ranks);
    std::filesystem::copy(folder / "two", folder / run, std::filesystem::copy_options::recursive);
    std::vector<std::string> more = {"train.steps=5"};
    if (ranks == 4) more.insert(more.end(), {"parallel.tensor=2", "parallel.sequence=2"});
    const Outcome o = run_ranked(ranks, train(run, more));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.out.find("after step 3"), std::string::npos) << o.out;
    expect_near(losses(run), losses("one"));
  }
}

TEST_F(Mpirun, HeadsThatTensorRanksCannotShareAreRefusedBeforeTheyStart) {
  const Outcome o = run_ranked(3, train("wrong", {"parallel.tensor=3"}));
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_NE(o.err.find("heads"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("tensor 1"), std::string::npos) << o.err;
}

TEST_F(Mpirun, ALayoutThatDoesNotFitIsRefusedOnceWithCode2) {
  const Outcome o = run_ranked(3, train("wrong", {"train.global_batch=8"}));
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_NE(o.err.find("data 3 x train.micro_batch 1 = 3"), std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("data 3 x train.micro_batch 1"), o.err.rfind("data 3 x train.micro_batch 1"))
      << o.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "wrong"));
}

TEST_F(Mpirun, StopsTogetherWhenAskedAndGoesOn) {
  const std::vector<std::string> endless = train("stopped", {"train.steps=100000"});
  Program program(in_project("launcher/run"), on_ranks(2, endless));
  ASSERT_TRUE(program.wait_for("3/100000  loss"));
  program.signal(SIGTERM);
  const Outcome o = program.wait();
  EXPECT_EQ(o.code, 75) << o.err;
  EXPECT_NE(o.out.find("stopped on request after step"), std::string::npos) << o.out;
  const size_t taken = losses("stopped").size();
  const Outcome again =
      run_ranked(3, train("stopped", {"train.steps=" + std::to_string(taken + 2)}));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(losses("stopped").size(), taken + 2);
}

}  // namespace
}  // namespace weft::test
