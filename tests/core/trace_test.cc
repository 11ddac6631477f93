#include "core/report/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weft::test {
namespace {

TEST(StepRanges, AreOneStepOrTwoWithADash) {
  EXPECT_TRUE(parse_steps("")->empty());
  EXPECT_EQ(parse_steps("7")->first, 7);
  EXPECT_EQ(parse_steps("7")->last, 7);
  EXPECT_EQ(parse_steps("3-12")->first, 3);
  EXPECT_EQ(parse_steps("3-12")->last, 12);
  for (const char* wrong : {"0", "-3", "3-", "5-3", "3-5-7", "a", "3 - 5", "1e3"}) {
    EXPECT_FALSE(parse_steps(wrong)) << wrong;
  }
}

TEST(Traces, NoteNothingUnlessAsked) {
  Trace trace;
  { const TraceScope scope(trace, "before"); }
  trace.start();
  {
    const TraceScope outer(trace, "outer", 3, 1);
    const TraceScope inner(trace, "inner");
  }
  trace.stop();
  { const TraceScope scope(trace, "after"); }
  ASSERT_EQ(trace.spans().size(), 2u);
  EXPECT_STREQ(trace.spans()[0].name, "inner");  // in the order of their ends
  const Trace::Span& outer = trace.spans()[1];
  EXPECT_EQ(outer.layer, 3);
  EXPECT_EQ(outer.micro_batch, 1);
  EXPECT_LE(trace.origin(), outer.begin);
  EXPECT_LE(outer.begin, trace.spans()[0].begin);
  EXPECT_LE(trace.spans()[0].end, outer.end);
}

TEST(Traces, AreReadByOtherPrograms) {
  using std::chrono::microseconds;
  Trace trace;
  trace.start();
  const Trace::Time t = trace.origin();
  trace.add({.kind = Trace::Kind::kCall,
             .name = "all_gather",
             .axis = "sequence",
             .layer = 2,
             .bytes = 640,
             .begin = t + microseconds(5),
             .end = t + microseconds(9)});
  trace.add({.kind = Trace::Kind::kFlight,
             .name = "all_gather",
             .axis = "sequence",
             .begin = t + microseconds(5),
             .end = t + microseconds(30)});
  const auto events =
      nlohmann::json::parse("[" + trace_events(trace, 3, "rank 3: \"data 1\"") + "]");
  ASSERT_EQ(events.size(), 5u) << "two of the process, a span, begin and end of a flight";
  EXPECT_EQ(events[0]["args"]["name"], "rank 3: \"data 1\"");
  const auto& call = events[2];
  EXPECT_EQ(call["ph"], "X");
  EXPECT_EQ(call["pid"], 3);
  EXPECT_EQ(call["ts"], 5.0);
  EXPECT_EQ(call["dur"], 4.0);
  EXPECT_EQ(call["args"], (nlohmann::json{{"axis", "sequence"}, {"layer", 2}, {"bytes", 640}}));
  EXPECT_EQ(events[3]["ph"], "b");
  EXPECT_EQ(events[4]["ph"], "e");
  EXPECT_EQ(events[3]["id"], events[4]["id"]);
  EXPECT_EQ(events[4]["ts"], 30.0);
}

}  // namespace
}  // namespace weft::test
