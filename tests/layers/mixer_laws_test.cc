// The laws of every line of mixers.def. A new mixer needs nothing here, unless the options below do
// not suit it.
//   gradient    backward agrees with differences of forward
//   packing     two documents in one batch are the two documents alone
//   causality   a later token changes nothing before it
//   split       a document in spans, states carried, is the document in one; so are the gradients
//   decode      token by token too
//   action      what leaves a span is apply(summary of the span, what entered)
//   monoid      the summary of two spans is combine(of the first, of the second); combine is
//               associative
//   adjoint     apply_adjoint is the transpose of apply's derivative
//   parallel    2, 3 and 4 ranks give what one gives, forward and backward, with documents that
//               cross them; the same bits whether states are gathered or go from rank to rank
//   kept        states between chunks that forward keeps change no bit of what backward gives
// The reference is golden: every line has golden cases of plain loops in another implementation
// (tests/launcher/golden_test.cc requires them).
#include <gtest/gtest.h>

#include <cmath>

#include "core/host_access.h"
#include "tests/layers/mixer_cases.h"

namespace weft::test {
namespace {

class MixerLaws : public Gradients, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override { made = std::make_unique<Made>(rig, rig.exec, GetParam()); }
  const Mixer& mixer() const { return *made->mixer; }

  Tensor forward(const Tensor& x, const Sequence& sequence) {
    SavedStack saved;
    StepContext step;
    return mixer().forward(rig.exec, x, {sequence, nullptr, &step}, saved);
  }

  std::unique_ptr<Made> made;
};

TEST_P(MixerLaws, Gradient) {
  const OptionTable options = law_options(GetParam());
  const auto mixer = make_mixer(name_in(GetParam()), MixerBuild{build().in("mixer"), options});
  prepare();
  // A document of one token, odd ones.
  const Sequence sequence = make_sequence({0, 1, 14, 37});
  const Tensor x = rig.normal("x", {37, kHidden}),
               cotangent = rig.normal("cotangent", {37, kHidden});
  const auto loss = [&] {
    SavedStack saved;
    StepContext step;
    return dot(mixer->forward(rig.exec, x, {sequence, nullptr, &step}, saved), cotangent);
  };
  SavedStack saved;
  StepContext step;
  mixer->forward(rig.exec, x, {sequence, nullptr, &step}, saved);
  const Tensor dx = mixer->backward(rig.exec, cotangent, {sequence, nullptr, &step}, saved);
  EXPECT_TRUE(saved.empty());
  expect_derivative("x", x, dx, loss);
  expect_all_weights(loss);
}

TEST_P(MixerLaws, Packing) {
  const Tensor x = rig.normal("x", {29, kHidden});
  const Tensor together = forward(x, make_sequence({0, 11, 29}));
  const Tensor first = forward(x.row_range(0, 11), make_sequence({0, 11}));
  const Tensor second = forward(x.row_range(11, 18), make_sequence({0, 18}));
  EXPECT_TRUE(Near(together.row_range(0, 11), first, 1e-6));
  EXPECT_TRUE(Near(together.row_range(11, 18), second, 1e-6));
}

// Within a chunk, and over several. The range of pruning (ACP) depends on the largest query and key
// of the document, so outputs may change by its error bound.
TEST_P(MixerLaws, Causality) {
  const bool prunes = GetParam().find("acp = true") != std::string::npos;
  for (const auto& [tokens, changed] : {std::pair(23, 17), std::pair(300, 210)}) {
    const Sequence sequence = make_sequence({0, tokens});
    const Tensor x = rig.normal("x", {tokens, kHidden});
    const Tensor before = forward(x, sequence);
    host<float>(x)[changed * kHidden + 3] += 1.0f;
    const Tensor after = forward(x, sequence);
    const Tensor was = before.row_range(0, changed), is = after.row_range(0, changed);
    EXPECT_TRUE(prunes ? Near(is, was, 10 * std::exp(-10.0)) : SameBits(is, was)) << tokens;
    EXPECT_FALSE(SameBits(before.row_range(changed, tokens - changed),
                          after.row_range(changed, tokens - changed)));
  }
}

constexpr int64_t kTokens = 71;  // more than a chunk

TEST_P(MixerLaws, Split) {
  const Tensor x = rig.normal("x", {kTokens, kHidden}), dy = rig.normal("dy", {kTokens, kHidden});
  const InPieces whole(rig, mixer(), x, dy, {kTokens});
  const InPieces parts(rig, mixer(), x, dy, {2, 5, 40, kTokens});
  EXPECT_TRUE(Near(parts.y, whole.y, kTolerance));
  EXPECT_TRUE(Near(parts.dx, whole.dx, kTolerance));
}

TEST_P(MixerLaws, Decode) {
  const Tensor x = rig.normal("x", {kTokens, kHidden}), dy = rig.normal("dy", {kTokens, kHidden});
  const InPieces whole(rig, mixer(), x, dy, {kTokens});
  const InPieces each(rig, mixer(), x, dy, single_tokens(kTokens));
  EXPECT_TRUE(Near(each.y, whole.y, kTolerance));
}

// Row counts are integers; gradients do not apply.
bool varies(const Tensor& t) { return t.dtype() == DType::kF32; }

State normal_like(Rig& rig, const std::string& name, const State& like) {
  State state;
  for (size_t i = 0; i < like.size(); ++i) {
    state.push_back(varies(like[i]) ? rig.normal(name + std::to_string(i), like[i].shape())
                                    : like[i]);
  }
  return state;
}

void expect_near(const State& got, const State& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(Near(got[i], want[i], kTolerance)) << what << i;
}

double dot_all(const State& a, const State& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += varies(a[i]) ? dot(a[i], b[i]) : 0.0;
  return sum;
}

// Records of every stateful part of the mixer on tokens [begin, end), with states carried from
// `state`.
std::vector<SpanRecord> record(Rig& rig, const Mixer& mixer, const Tensor& x, int32_t begin,
                               int32_t end, MixerState& state) {
  std::vector<SpanRecord> records;
  Sequence sequence = make_sequence({0, end - begin}, {begin});
  sequence.records = &records;
  SavedStack saved;
  StepContext step;
  mixer.forward(rig.exec, x.row_range(begin, end - begin), {sequence, &state, &step}, saved);
  return records;
}

// apply_adjoint against differences of apply at `s`, of fourth order, since a maximum of exponents
// (mLSTM) makes apply no affine map. If half the step gives another difference, the step crossed a
// change of the maximum, and another state is taken.
void expect_adjoint(Rig& rig, const SpanRecord& span, const std::string& part) {
  constexpr int kStates = 6;
  for (int attempt = 0; attempt < kStates; ++attempt) {
    // A perturbed state: the state itself may lie on an edge (a running maximum that two terms
    // share).
    const std::string tick(static_cast<size_t>(attempt), '\'');
    const State s = normal_like(rig, "s" + tick, span.entering);
    for (size_t t = 0; t < s.size(); ++t) {
      if (varies(s[t])) shift(s[t], span.entering[t], 1.0);
    }
    const State u = normal_like(rig, "u" + tick, s),
                d = normal_like(rig, "d" + tick, span.algebra->apply(rig.exec, span.summary, s));
    const auto along = [&](double h) {
      State moved = normal_like(rig, "u" + tick, s);
      for (size_t t = 0; t < s.size(); ++t) {
        for (int64_t e = 0; varies(s[t]) && e < s[t].elements(); ++e) {
          float& x = host<float>(moved[t])[e];
          x = host<float>(s[t])[e] + static_cast<float>(h) * x;
        }
      }
      return dot_all(span.algebra->apply(rig.exec, span.summary, moved), d);
    };
    const auto slope = [&](double h) {
      return (8.0 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12.0 * h);
    };
    constexpr double kMove = 0.0625;
    const double want = slope(kMove);
    const State back = span.algebra->apply_adjoint(rig.exec, span.summary, s, d);
    const double allowed = 3e-4 * (std::abs(want) + std::sqrt(dot_all(back, back)) + 1);
    const bool edge = std::abs(slope(kMove / 2) - want) > allowed;
    if (edge && std::abs(dot_all(back, u) - want) > allowed && attempt + 1 < kStates) continue;
    EXPECT_NEAR(dot_all(back, u), want, allowed) << "adjoint of part " << part;
    return;
  }
}

TEST_P(MixerLaws, ActionMonoidAndAdjoint) {
  const Tensor x = rig.normal("x", {kTokens, kHidden});
  MixerState state;
  record(rig, mixer(), x, 0, 3, state);
  const auto whole = record(rig, mixer(), x, 3, kTokens, state);
  MixerState again;
  record(rig, mixer(), x, 0, 3, again);
  const auto a = record(rig, mixer(), x, 3, 7, again), b = record(rig, mixer(), x, 7, 50, again),
             c = record(rig, mixer(), x, 50, kTokens, again);
  ASSERT_EQ(a.size(), whole.size());
  // A mixer's state is the product of its parts, whose laws are those of each: none may be missing.
  ASSERT_EQ(whole.size(), state.parts().size());
  ASSERT_FALSE(whole.empty());
  for (size_t i = 0; i < whole.size(); ++i) {
    const SpanAlgebra& algebra = *whole[i].algebra;
    EXPECT_NE(algebra.program(), "unnamed") << "part " << i;
    if (algebra.exchange() == Exchange::kRing) continue;  // spans have no summary
    expect_near(algebra.apply(rig.exec, whole[i].summary, whole[i].entering), whole[i].leaving,
                "action ");
    const Summary left = algebra.combine(
        rig.exec, algebra.combine(rig.exec, a[i].summary, b[i].summary), c[i].summary);
    const Summary right = algebra.combine(rig.exec, a[i].summary,
                                          algebra.combine(rig.exec, b[i].summary, c[i].summary));
    expect_near(left.transition, right.transition, "associative transition ");
    expect_near(left.update, right.update, "associative update ");
    expect_near(left.transition, whole[i].summary.transition, "transition ");
    expect_near(left.update, whole[i].summary.update, "update ");
    expect_adjoint(rig, whole[i], std::to_string(i));
  }
}

struct Cut {
  const char* name;
  std::vector<int32_t> documents;
  int64_t rows;
};
// One long document; several that cross ranks, with borders at ranks' borders, of one token; two
// rows.
const Cut kCuts[] = {{"one document", {0, 73}, 1},
                     {"many documents", {0, 7, 8, 24, 36, 60, 73}, 1},
                     {"two rows", {0, 37, 50, 51, 74}, 2},
                     {"ranks without tokens", {0, 1, 3}, 1}};

TEST_P(MixerLaws, Parallel) {
  for (const Cut& cut : kCuts) {
    const int64_t tokens = cut.documents.back();
    const Tensor x = rig.normal("x", {tokens, kHidden}), dy = rig.normal("dy", {tokens, kHidden});
    const OverRanks one(rig, GetParam(), x, dy, cut.documents, cut.rows, {});
    for (const int size : {2, 3, 4}) {
      const OverRanks many(rig, GetParam(), x, dy, cut.documents, cut.rows, {.sequence = size});
      EXPECT_TRUE(Near(many.y, one.y, kTolerance)) << cut.name << ", ranks: " << size;
      EXPECT_TRUE(Near(many.dx, one.dx, kTolerance)) << cut.name << ", ranks: " << size;
      for (const auto& [name, grad] : one.weights) {
        EXPECT_TRUE(near_enough(many.weights.at(name), grad, one.largest()))
            << name << ", " << cut.name << ", ranks: " << size;
      }
    }
  }
}

// Every kind of exchange of states, with and without overlap.
TEST_P(MixerLaws, ParallelTravel) {
  const Cut& cut = kCuts[1];
  const int64_t tokens = cut.documents.back();
  const Tensor x = rig.normal("x", {tokens, kHidden}), dy = rig.normal("dy", {tokens, kHidden});
  for (const int size : {2, 3, 4}) {
    const auto over = [&](SpanExchange exchange, bool overlap) {
      return OverRanks(rig, GetParam(), x, dy, cut.documents, cut.rows,
                       {.sequence = size, .travel = {exchange, overlap}});
    };
    const OverRanks plain = over(SpanExchange::kGather, false);
    for (const auto& [what, other] :
         {std::pair("gather, overlapped", over(SpanExchange::kGather, true)),
          std::pair("scan", over(SpanExchange::kScan, false)),
          std::pair("scan, overlapped", over(SpanExchange::kScan, true))}) {
      EXPECT_TRUE(SameBits(other.y, plain.y)) << what << ", ranks: " << size;
      EXPECT_TRUE(SameBits(other.dx, plain.dx)) << what << ", ranks: " << size;
      EXPECT_TRUE(other.weights == plain.weights) << what << ", ranks: " << size;
    }
  }
}

// dx and the gradients of all weights, by bytes.
std::vector<Tensor> gradients(Rig& rig, const std::string& law, const Tensor& x, const Tensor& dy,
                              ChunkStates states) {
  const Made made(rig, rig.exec, law);
  Sequence sequence = make_sequence({0, 3, kTokens});
  sequence.chunk_states = states;
  SavedStack saved;
  StepContext step;
  std::vector<Tensor> out = {made.mixer->forward(rig.exec, x, {sequence, nullptr, &step}, saved)};
  out.push_back(made.mixer->backward(rig.exec, dy, {sequence, nullptr, &step}, saved));
  for (const Parameter& p : made.store.all()) {
    if (p.spec.buffer) continue;
    out.push_back(rig.exec.empty(p.grad.shape()));
    std::copy_n(host<float>(p.grad), p.grad.elements(), host<float>(out.back()));
  }
  return out;
}

TEST_P(MixerLaws, KeptChunkStatesChangeNoBit) {
  const Tensor x = rig.normal("x", {kTokens, kHidden}), dy = rig.normal("dy", {kTokens, kHidden});
  const auto again = gradients(rig, GetParam(), x, dy, ChunkStates::kRecomputed),
             kept = gradients(rig, GetParam(), x, dy, ChunkStates::kKept);
  ASSERT_EQ(again.size(), kept.size());
  for (size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(SameBits(again[i], kept[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(All, MixerLaws, testing::ValuesIn(mixers_and_variants()), name_of_case);

}  // namespace
}  // namespace weft::test
