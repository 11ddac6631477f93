// Pipelines as a user starts them: real processes under launcher/run.
#include "tests/support/mpirun_fixture.h"

namespace weft::test {
namespace {

using nlohmann::json;

using PipelineRuns = Mpirun;

TEST_F(PipelineRuns, GiveTheBitsOfOneRankWhateverTheSchedule) {
  ASSERT_EQ(run_weft(train("one")).code, 0);
  for (const char* schedule : {"1f1b", "zero_bubble"}) {
    const Outcome o = run_ranked(
        2, train(schedule, {"parallel.pipe=2", std::string("parallel.schedule=") + schedule}));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(losses(schedule), losses("one")) << schedule;
    EXPECT_NE(o.out.find("[ stage 1 on pipe 1: blocks"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("% bubble = (p-1)/("), std::string::npos) << o.out;
  }
}

TEST_F(PipelineRuns, GoOnWithAnotherNumberOfStages) {
  // The other schedules of the learning rate depend on the number of steps.
  const std::string rate = "optimizer.schedule=constant";
  ASSERT_EQ(run_weft(train("whole", {"train.steps=5", rate})).code, 0);
  const auto resumed = [&](const std::string& run, int first, int then) {
    const auto pipe = [](int ranks) { return "parallel.pipe=" + std::to_string(ranks); };
    EXPECT_EQ(run_ranked(first, train(run, {"train.steps=3", rate, pipe(first)})).code, 0);
    const Outcome o = run_ranked(then, train(run, {"train.steps=5", rate, pipe(then)}));
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.out.find("after step 3"), std::string::npos) << o.out;
    EXPECT_EQ(losses(run), losses("whole")) << run;
  };
  resumed("two_to_one", 2, 1);
  resumed("one_to_two", 1, 2);
}

TEST_F(PipelineRuns, AreMeasuredByOneRank) {
  const Outcome o =
      run_ranked(2, {"bench", "step", in_project("configs/tiny.toml"), "train.sequence=32",
                     "train.global_batch=8", "train.micro_batch=1", "parallel.pipe=2", "--steps",
                     "2", "--warmup", "1", "--json", folder / "step.json"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out.find("ms/step"), o.out.rfind("ms/step")) << o.out;
  const json result = json::parse(get_file(folder / "step.json"));
  EXPECT_NEAR(result["bubble"]["formula"].get<double>(), 1.0 / 9, 1e-9);
  EXPECT_GT(result["comm_bytes"]["pipe"].get<int64_t>(), 0);
  EXPECT_EQ(result["losses"].size(), 3u);
}

}  // namespace
}  // namespace weft::test
