// A document in two spans, the state of the first entering the second, is the document in one:
// outputs, and gradients when the gradient of the state goes back.
#include <gtest/gtest.h>

#include "layers/mixers/registry.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kHidden = 32, kTokens = 23, kFirst = 9;

class MixerStates : public testing::TestWithParam<std::string> {};

TEST_P(MixerStates, CarryADocumentAcrossSpans) {
  Rig rig;
  ParameterStore store;
  const OptionTable options = OptionTable::parse("heads = 2\nkv_heads = 1");
  const Build build{.store = store, .scope = "t.", .hidden = kHidden};
  const auto mixer = make_mixer(GetParam(), MixerBuild{build, options});
  store.allocate(rig.ledger, DType::kF32, ParameterStore::Gradients::kAllocate);
  store.initialize(rig.exec, 3);
  for (Parameter& p : store.all()) {
    if (p.spec.init.kind != Init::Kind::kNormal) continue;
    const Tensor fresh = rig.normal(p.spec.name, p.shape, 0.3);
    std::copy_n(fresh.data<float>(), p.shape.elements(), p.master.data<float>());
  }
  store.publish(rig.exec);

  const Tensor x = rig.normal("x", {kTokens, kHidden}), dy = rig.normal("dy", {kTokens, kHidden});
  const int64_t rest = kTokens - kFirst;
  const Sequence whole = make_sequence(rig.exec, {0, kTokens});
  const Sequence one = make_sequence(rig.exec, {0, kFirst});
  const Sequence two = make_sequence(rig.exec, {0, static_cast<int32_t>(rest)});
  SavedStack saved, saved_one, saved_two;
  const Tensor y = mixer->forward(rig.exec, x, {whole}, saved);
  const Tensor dx = mixer->backward(rig.exec, dy, {whole}, saved);
  MixerState state, d_state;
  const Tensor y_one = mixer->forward(rig.exec, x.row_range(0, kFirst), {one, &state}, saved_one);
  const Tensor y_two =
      mixer->forward(rig.exec, x.row_range(kFirst, rest), {two, &state}, saved_two);
  EXPECT_TRUE(Near(y_one, y.row_range(0, kFirst), 1e-5));
  EXPECT_TRUE(Near(y_two, y.row_range(kFirst, rest), 1e-5));
  const Tensor dx_two =
      mixer->backward(rig.exec, dy.row_range(kFirst, rest), {two, &d_state}, saved_two);
  const Tensor dx_one =
      mixer->backward(rig.exec, dy.row_range(0, kFirst), {one, &d_state}, saved_one);
  EXPECT_TRUE(Near(dx_one, dx.row_range(0, kFirst), 1e-5));
  EXPECT_TRUE(Near(dx_two, dx.row_range(kFirst, rest), 1e-5));
}

INSTANTIATE_TEST_SUITE_P(WithoutPositions, MixerStates,
                         testing::Values("bla", "lightning", "gla", "hgrn2"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weft::test
