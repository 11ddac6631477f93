// The ring: rules without a summary pass their state from rank to rank. A rule with a summary must
// give equal results either way.
#include <gtest/gtest.h>

#include <mutex>

#include "core/host_access.h"
#include "layers/recurrence/scalar.h"
#include "parallel/comm/thread_comm.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kHeads = 2, kWidth = 5;
constexpr HeadOptions kShape{.heads = kHeads, .kv_heads = kHeads, .dk = kWidth, .dv = kWidth};

// Scalar decay without a summary.
class Unsummarized final : public Recurrence<ScalarInputs, ScalarGradients, ScalarKept> {
 public:
  Exchange exchange() const override { return Exchange::kRing; }
  double flops_per_token() const override { return rule_.flops_per_token(); }
  State start(Exec& exec, int64_t sequences) const override { return rule_.start(exec, sequences); }
  Tensor run(Exec& exec, const ScalarInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, ScalarKept& keep) const override {
    return rule_.run(exec, in, sequence, entering, leaving, keep);
  }
  void run_backward(Exec& exec, const ScalarInputs& in, const Sequence& sequence,
                    const ScalarKept& keep, const State& entering, const Cotangents& d,
                    const ScalarGradients& gradients) const override {
    rule_.run_backward(exec, in, sequence, keep, entering, {d.d_out, d.d_leaving, d.d_entering},
                       gradients);
  }
  Summary combine(Exec&, const Summary&, const Summary&) const override {
    return refuse<Summary>();
  }
  State apply(Exec&, const Summary&, const State&) const override { return refuse<State>(); }
  State apply_adjoint(Exec&, const Summary&, const State&, const State&) const override {
    return refuse<State>();
  }
  Summary summarize(Exec&, const ScalarInputs&, const Sequence&) const override {
    return refuse<Summary>();
  }
  State state_gradient(Exec&, const ScalarInputs&, const Sequence&, const ScalarKept&, const State&,
                       ConstView) const override {
    return refuse<State>();
  }

 private:
  template <class T>
  static T refuse() {
    throw Error("a rule on the ring was asked for a summary");
  }
  ScalarRecurrence rule_{{.heads = kShape, .scale = 0.5f}};
};

struct Results {
  std::vector<double> out, dq, dk, dv, dg;
};

// Outputs and gradients of all tokens, concatenated over ranks.
template <class Rule>
Results over_ranks(const Rule& rule, int ranks, const std::vector<int32_t>& documents) {
  std::vector<Results> parts(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](ThreadComm& comm, Exec& exec) {
    Rig rig(1);
    const int64_t tokens = documents.back(), width = kHeads * kWidth;
    const Sequence sequence = make_sequence(documents, 1, comm);
    const auto span = sequence.spans[static_cast<size_t>(comm.rank())];
    const auto mine = [&](const char* name, int64_t columns) {
      return rig.normal(name, {tokens, columns}).row_range(span.begin, span.end - span.begin);
    };
    const Tensor q = mine("q", width), k = mine("k", width), v = mine("v", width),
                 d = mine("d", width);
    const Tensor g = mine("g", kHeads);
    for (int64_t i = 0; i < g.elements(); ++i)
      host<float>(g)[i] = -0.1f * std::abs(host<float>(g)[i]);
    const Tensor dq = exec.empty(q.shape()), dk = exec.empty(q.shape()), dv = exec.empty(q.shape()),
                 dg = exec.empty(g.shape());
    SavedStack saved;
    const ScalarInputs in{q, k, v, g};
    const Tensor out = rule.forward(exec, in, sequence, nullptr, saved);
    rule.backward(exec, in, sequence, d, nullptr, {dq, dk, dv, dg}, saved);
    parts[static_cast<size_t>(comm.rank())] = {numbers(out), numbers(dq), numbers(dk), numbers(dv),
                                               numbers(dg)};
  });
  Results all;
  for (const Results& part : parts) {
    for (auto member : {&Results::out, &Results::dq, &Results::dk, &Results::dv, &Results::dg}) {
      (all.*member).insert((all.*member).end(), (part.*member).begin(), (part.*member).end());
    }
  }
  return all;
}

TEST(Ring, GivesWhatOneRankAndWhatSummariesGive) {
  const ScalarRecurrence summarized({.heads = kShape, .scale = 0.5f});
  const Unsummarized ring;
  for (const std::vector<int32_t>& documents :
       {std::vector<int32_t>{0, 71}, std::vector<int32_t>{0, 9, 10, 36, 71}}) {
    const Results one = over_ranks(ring, 1, documents);
    for (const int ranks : {2, 3, 4}) {
      const Results passed = over_ranks(ring, ranks, documents);
      const Results gathered = over_ranks(summarized, ranks, documents);
      for (auto member : {&Results::out, &Results::dq, &Results::dk, &Results::dv, &Results::dg}) {
        // Sums of some hundred f32 numbers, cut at other places.
        EXPECT_TRUE(Near(passed.*member, one.*member, 2e-5)) << ranks << " ranks";
        EXPECT_TRUE(Near(passed.*member, gathered.*member, 2e-5)) << ranks << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
