// run.trace: the timeline of all ranks in some steps, as other programs read it.
#include <algorithm>
#include <map>
#include <set>

#include "tests/support/mpirun_fixture.h"

namespace weft::test {
namespace {

using nlohmann::json;

constexpr double kRounding = 2e-3;  // microseconds: times are written with three digits

struct Event {
  std::string name, kind;
  int rank;
  double begin, end;
  json more;
  bool inside(const Event& other) const {
    return begin >= other.begin - kRounding && end <= other.end + kRounding;
  }
};

// Events with a duration on one line of a rank; of events with equal start the longest first.
std::vector<Event> spans_of(const json& trace) {
  std::vector<Event> spans;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const double begin = e["ts"], duration = e["dur"];
    EXPECT_GE(begin, 0) << e;
    EXPECT_GE(duration, 0) << e;
    spans.push_back({e["name"], e["cat"], e["pid"], begin, begin + duration, e["args"]});
  }
  std::sort(spans.begin(), spans.end(), [](const Event& a, const Event& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  return spans;
}

void expect_nested(const std::vector<Event>& spans, int rank) {
  std::vector<Event> open;
  for (const Event& span : spans) {
    if (span.rank != rank) continue;
    while (!open.empty() && open.back().end <= span.begin + kRounding) open.pop_back();
    if (!open.empty()) {
      EXPECT_TRUE(span.inside(open.back())) << span.name << open.back().name;
    }
    open.push_back(span);
  }
}

TEST_F(Mpirun, TracesShowWhatAllRanksDidInTheStepsAskedFor) {
  const Outcome o = run_ranked(2, train("run", {"run.trace=2-3", "run.checkpoint_every=2",
                                                "parallel.sequence=2", "parallel.expert=2"}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("run/trace.json"), std::string::npos) << o.out;
  const json trace = json::parse(get_file(folder / "run/trace.json"));
  const std::vector<Event> spans = spans_of(trace);
  std::vector<json> metrics;
  std::ifstream file(folder / "run/metrics.jsonl");
  for (std::string line; std::getline(file, line);) metrics.push_back(json::parse(line));
  ASSERT_EQ(metrics.size(), 4u);

  for (const int rank : {0, 1}) {
    expect_nested(spans, rank);
    std::map<std::string, int> named;
    std::vector<Event> steps;
    for (const Event& span : spans) {
      if (span.rank != rank) continue;
      if (span.kind == "work") ++named[span.name];
      if (span.name == "step") steps.push_back(span);
    }
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_EQ(named["data"], 2);
    EXPECT_EQ(named["optimizer"], 2);
    EXPECT_EQ(named["save"], 1) << "after step 2";
    EXPECT_EQ(named["forward"], 2 * 12) << "micro-batches";
    EXPECT_EQ(named["backward"], 2 * 12);
    EXPECT_EQ(named["forward of layer"] % named["forward"], 0);
    EXPECT_EQ(named["backward of layer"], named["forward of layer"]);
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].more["step"], i + 2);
      std::map<std::string, int64_t> calls, bytes;
      for (const Event& span : spans) {
        if (span.rank != rank || span.kind != "call" || !span.inside(steps[i])) continue;
        ++calls[span.more["axis"]];
        bytes[span.more["axis"]] += span.more["bytes"].get<int64_t>();
      }
      EXPECT_GE(calls.size(), 2u) << "sequence and expert ranks";
      if (rank != 0) continue;  // metrics are those of the first
      EXPECT_EQ(json(calls), metrics[i + 1]["comm_calls"]);
      EXPECT_EQ(json(bytes), metrics[i + 1]["comm_bytes"]);
    }
  }
  std::multiset<std::string> begun, ended, processes;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] == "b") begun.insert(e["id"]);
    if (e["ph"] == "e") ended.insert(e["id"]);
    if (e["name"] == "process_name") processes.insert(e["args"]["name"]);
  }
  EXPECT_FALSE(begun.empty());
  EXPECT_EQ(begun, ended);
  EXPECT_EQ(processes.size(), 2u);
}

TEST_F(Mpirun, ATraceOfNoStepsIsRefused) {
  const Outcome o = run_weft(train("wrong", {"run.trace=5-3"}));
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("run.trace"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("3-5"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace weft::test
