// Every switch of FoX, alone and combined as in the ablation of its paper: backward against
// differences of forward, along directions near the gradient (see gradients_test.cc).
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <functional>

#include "core/host_access.h"
#include "layers/mixers/registry.h"
#include "parallel/parameter_values.h"
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
    store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kAllocate);
    initialize(rig.exec, store, 3);
    for (Parameter& p : store.all()) {
      if (p.spec.init.kind != Init::Kind::kNormal) continue;
      const Tensor fresh = rig.normal(p.spec.name, p.shape, 0.3);
      std::copy_n(host<float>(fresh), p.shape.elements(), host<float>(p.master));
    }
    publish(rig.exec, store);
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
    std::vector<float> before(host<float>(value), host<float>(value) + value.elements());
    for (int64_t i = 0; i < value.elements(); ++i) {
      host<float>(value)[i] += static_cast<float>(by * host<float>(grad)[i] / size);
    }
    publish(fox.rig.exec, fox.store);
    const double l = loss();
    std::copy(before.begin(), before.end(), host<float>(value));
    publish(fox.rig.exec, fox.store);
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
  const Sequence sequence = make_sequence({0, 1, 14, 37});
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
                                         "pro = true\nrope = true\nacp = true",
                                         "forget_gate = false\nrope = true",
                                         "pro = true\nforget_gate = false\nrope = true"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

TEST(Fox, ProIsAllFourSwitches) {
  FoxRig pro("heads = 2\npro = true");
  FoxRig four("heads = 2\nqk_norm = true\noutput_norm = true\noutput_gate = true\nkv_shift = true");
  const Tensor x = pro.rig.normal("x", {29, kHidden});
  const Sequence sequence = make_sequence({0, 11, 29});
  EXPECT_TRUE(SameBits(pro.forward(x, sequence), four.forward(x, sequence)));
}

// The rows of the ablation that remove one feature from FoX (Pro).
TEST(Fox, ProLosesWhatIsSetToFalse) {
  const char* all[] = {"qk_norm", "output_norm", "output_gate", "kv_shift"};
  for (const char* without : all) {
    std::string others = "heads = 2\n";
    for (const char* name : all) others += fmt::format("{} = {}\n", name, name != without);
    FoxRig less(fmt::format("heads = 2\npro = true\n{} = false", without)), same(others);
    const Tensor x = less.rig.normal("x", {29, kHidden});
    const Sequence sequence = make_sequence({0, 11, 29});
    EXPECT_EQ(less.store.all().size(), same.store.all().size()) << without;
    EXPECT_TRUE(SameBits(less.forward(x, sequence), same.forward(x, sequence))) << without;
  }
}

// Without gate and other features FoX equals softmax attention.
TEST(Fox, IsSoftmaxAttentionWithoutItsGate) {
  const std::string options = "heads = 4\nkv_heads = 2\ndk = 8\ndv = 12\nrope = true\n";
  FoxRig fox(options + "forget_gate = false");
  ParameterStore store;
  const OptionTable table = OptionTable::parse(options);
  const auto softmax =
      make_mixer("softmax", MixerBuild{{.store = store, .scope = "", .hidden = kHidden}, table});
  store.allocate(fox.rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
  ASSERT_EQ(store.all().size(), fox.store.all().size());
  for (size_t i = 0; i < store.all().size(); ++i) {
    const Tensor &from = fox.store.all()[i].master, &to = store.all()[i].master;
    std::copy_n(host<float>(from), from.elements(), host<float>(to));
  }
  publish(fox.rig.exec, store);
  const Tensor x = fox.rig.normal("x", {29, kHidden});
  const Sequence sequence = make_sequence({0, 11, 29});
  SavedStack saved;
  EXPECT_TRUE(
      SameBits(fox.forward(x, sequence), softmax->forward(fox.rig.exec, x, {sequence}, saved)));
}

TEST(Fox, RefusesToPruneWhatItDoesNotForget) {
  EXPECT_THROW(FoxRig("heads = 2\nforget_gate = false\nacp = true"), ConfigError);
}

// Gates that forget half at every token, over several blocks: pruning skips most of them.
TEST(Fox, PruningChangesTheOutputByNoMoreThanItPromises) {
  for (const char* norm : {"qk_norm = false\n", "qk_norm = true\n"}) {
    FoxRig whole(std::string(norm) + "heads = 2\nacp = false");
    FoxRig pruned(std::string(norm) + "heads = 2\nacp = true");
    const Tensor x = whole.rig.normal("x", {700, kHidden});
    const Sequence sequence = make_sequence({0, 700});
    // Weights of e^-10 move between values, which are a few times as large as their averages.
    const double allowed = 10 * std::exp(-10.0);
    EXPECT_TRUE(Near(pruned.forward(x, sequence), whole.forward(x, sequence), allowed));
  }
}

// Heads that forget everything in a token or two, a tenth and a hundredth per token, mixed as in
// trained models, at lengths that pruning targets. o_proj passes the outputs of attention
// unchanged, and values are x itself.
struct LongFox {
  LongFox(const std::string& options, const std::string& acp)
      : fox("heads = 4\n" + options + "acp = " + acp) {
    for (const char* name : {"v_proj.weight", "o_proj.weight"}) {
      float* w = host<float>(fox.store.find(name)->master);
      for (int64_t i = 0; i < kHidden * kHidden; ++i) w[i] = i % (kHidden + 1) == 0 ? 1.0f : 0.0f;
    }
    const float rates[] = {1.0f, 0.3f, 0.1f, 0.01f};
    for (int h = 0; h < 4; ++h) {
      host<float>(fox.store.find("fgate_proj.bias")->master)[h] = -std::log(std::expm1(rates[h]));
    }
    publish(fox.rig.exec, fox.store);
  }
  Tensor forward(const Tensor& x, int32_t tokens) {
    const Sequence sequence = make_sequence({0, tokens});
    SavedStack saved;
    step = {};
    return fox.mixer->forward(fox.rig.exec, x, {sequence, nullptr, &step}, saved);
  }
  FoxRig fox;
  StepContext step;
};

TEST(Fox, PruningKeepsItsPromiseOverLongDocuments) {
  struct Case {
    const char* options;
    int32_t tokens;
    double pruned;  // at least
  };
  for (const Case& c : {Case{"qk_norm = false\n", 4096, 0.6}, Case{"qk_norm = true\n", 4096, 0.7},
                        Case{"qk_norm = true\n", 16384, 0.85}}) {
    SCOPED_TRACE(fmt::format("{}{} tokens", c.options, c.tokens));
    LongFox whole(c.options, "false"), pruned(c.options, "true");
    const Tensor x = whole.fox.rig.normal("x", {c.tokens, kHidden});
    const auto want = numbers(whole.forward(x, c.tokens)),
               got = numbers(pruned.forward(x, c.tokens));
    // Weights of epsilon = e^-10 in all move from some values to others.
    double largest = 0, worst = 0;
    for (const double v : numbers(x)) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
    EXPECT_LE(worst, 2 * std::exp(-10.0) * largest);

    ASSERT_EQ(pruned.step.pruning.size(), 1u);
    int64_t kept = 0, causal = 0;
    double nearer = 1.0;
    for (const kernels::BlockCount& head : pruned.step.pruning[0].heads) {
      kept += head.kept, causal += head.causal;
      const double share = 1.0 - static_cast<double>(head.kept) / static_cast<double>(head.causal);
      EXPECT_LE(share, nearer) << "heads that forget more slowly keep more";
      nearer = share;
    }
    EXPECT_GE(1.0 - static_cast<double>(kept) / static_cast<double>(causal), c.pruned);
  }
}

TEST(Fox, RefusesAnEpsilonOfOneOrMore) {
  EXPECT_THROW(FoxRig("heads = 2\nacp_log_epsilon = 0"), ConfigError);
}

}  // namespace
}  // namespace weft::test
