// Every switch of FoX on its own and all of them together, as the ablation of its paper has them:
// backward against differences of forward, along directions near the gradient (see
// gradients_test.cc).
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <functional>

#include "layers/mixers/registry.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kHidden = 32;

double dot(const Tensor& a, const Tensor& b) {
  const auto x = numbers(a), y = numbers(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

class FoxRig {
 public:
  explicit FoxRig(const std::string& options) : options_(OptionTable::parse(options)) {
    const Build build{.store = store, .scope = "", .hidden = kHidden};
    mixer = make_mixer("fox", MixerBuild{build, options_});
    store.allocate(rig.ledger, DType::kF32, ParameterStore::Gradients::kAllocate);
    store.initialize(rig.exec, 3);
    for (Parameter& p : store.all()) {
      if (p.spec.init.kind != Init::Kind::kNormal) continue;
      const Tensor fresh = rig.normal(p.spec.name, p.shape, 0.3);
      std::copy_n(fresh.data<float>(), p.shape.elements(), p.master.data<float>());
    }
    store.publish(rig.exec);
  }

  Tensor forward(const Tensor& x, const Sequence& sequence) {
    SavedStack saved;
    return mixer->forward(rig.exec, x, {sequence}, saved);
  }

  Rig rig;
  ParameterStore store;
  std::unique_ptr<Mixer> mixer;

 private:
  OptionTable options_;
};

// <grad, u> against (4 D(h/2) - D(h)) / 3, D the central difference along u = grad / |grad|.
void expect_slope(FoxRig& fox, const std::string& what, const Tensor& value, const Tensor& grad,
                  const std::function<double()>& loss) {
  const double size = std::sqrt(dot(grad, grad));
  ASSERT_GT(size, 0.0) << what << " has no gradient at all";
  const auto at = [&](double by) {
    std::vector<float> before(value.data<float>(), value.data<float>() + value.elements());
    for (int64_t i = 0; i < value.elements(); ++i) {
      value.data<float>()[i] += static_cast<float>(by * grad.data<float>()[i] / size);
    }
    fox.store.publish(fox.rig.exec);
    const double l = loss();
    std::copy(before.begin(), before.end(), value.data<float>());
    fox.store.publish(fox.rig.exec);
    return l;
  };
  constexpr double h = 1e-2;
  const double whole = (at(h) - at(-h)) / (2 * h), half = (at(h / 2) - at(-h / 2)) / h;
  EXPECT_NEAR(size, (4 * half - whole) / 3, 2e-3 * size + 10 * 6e-8 / h * (std::abs(loss()) + 1))
      << what;
}

class FoxSwitches : public testing::TestWithParam<const char*> {};

TEST_P(FoxSwitches, GradientsAgreeWithDifferences) {
  FoxRig fox(std::string("heads = 4\nkv_heads = 2\ndk = 8\ndv = 12\n") + GetParam());
  const Sequence sequence = make_sequence(fox.rig.exec, {0, 1, 14, 37});
  const Tensor x = fox.rig.normal("x", {37, kHidden}),
               cotangent = fox.rig.normal("c", {37, kHidden});
  const auto loss = [&] { return dot(fox.forward(x, sequence), cotangent); };
  SavedStack saved;
  fox.mixer->forward(fox.rig.exec, x, {sequence}, saved);
  const Tensor dx = fox.mixer->backward(fox.rig.exec, cotangent, {sequence}, saved);
  EXPECT_TRUE(saved.empty());
  expect_slope(fox, "x", x, dx, loss);
  for (Parameter& p : fox.store.all()) expect_slope(fox, p.spec.name, p.master, p.grad, loss);
}

INSTANTIATE_TEST_SUITE_P(Each, FoxSwitches,
                         testing::Values("qk_norm = true", "output_norm = true",
                                         "output_gate = true", "kv_shift = true", "rope = true",
                                         "acp = true", "kv_shift = true\nrope = true", "pro = true",
                                         "pro = true\nrope = true\nacp = true"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

TEST(Fox, ProIsAllFourSwitches) {
  FoxRig pro("heads = 2\npro = true");
  FoxRig four("heads = 2\nqk_norm = true\noutput_norm = true\noutput_gate = true\nkv_shift = true");
  const Tensor x = pro.rig.normal("x", {29, kHidden});
  const Sequence sequence = make_sequence(pro.rig.exec, {0, 11, 29});
  EXPECT_TRUE(SameBits(pro.forward(x, sequence), four.forward(x, sequence)));
}

// Gates that forget half at every token, over several blocks: pruning leaves out most of them.
TEST(Fox, PruningChangesTheOutputByNoMoreThanItPromises) {
  for (const char* norm : {"qk_norm = false\n", "qk_norm = true\n"}) {
    FoxRig whole(std::string(norm) + "heads = 2\nacp = false");
    FoxRig pruned(std::string(norm) + "heads = 2\nacp = true");
    const Tensor x = whole.rig.normal("x", {700, kHidden});
    const Sequence sequence = make_sequence(whole.rig.exec, {0, 700});
    // Weights of e^-10 move between values, which are a few times as large as their averages.
    const double allowed = 10 * std::exp(-10.0);
    EXPECT_TRUE(Near(pruned.forward(x, sequence), whole.forward(x, sequence), allowed));
  }
}

TEST(Fox, RefusesAnEpsilonOfOneOrMore) {
  EXPECT_THROW(FoxRig("heads = 2\nacp_log_epsilon = 0"), ConfigError);
}

}  // namespace
}  // namespace weft::test
