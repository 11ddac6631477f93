// Options that no golden case sets: layers with them are compared with plain loops.
#include <gtest/gtest.h>

#include "core/host_access.h"
#include "layers/recurrence/delta.h"
#include "layers/recurrence/fixed_decays.h"
#include "layers/recurrence/rank_one.h"
#include "parallel/parameter_values.h"
#include "tests/layers/mixer_cases.h"
#include "tests/layers/naive_mixers.h"

namespace weft::test {
namespace {

using naive::Here;
using naive::Numbers;

constexpr int64_t kTokens = 71;  // more than a chunk
constexpr int64_t kHeads = 3, kKey = 8, kValue = 12;
const double kScale = 1 / std::sqrt(8.0);

// A layer with weights of the size of its inputs, and its parts in double.
class MixerOptions : public Gradients {
 protected:
  Tensor forward(const std::string& mixer, const std::string& text, int64_t layer = 0,
                 int64_t layers = 1) {
    options_ = OptionTable::parse(
        fmt::format("heads = {}\ndk = {}\ndv = {}\n{}", kHeads, kKey, kValue, text));
    parts_ = std::make_unique<ParameterStore>();
    const Build build{
        .store = *parts_, .scope = "", .hidden = kHidden, .layer = layer, .layers = layers};
    const auto made = make_mixer(mixer, MixerBuild{build, options_});
    parts_->allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
    initialize(rig.exec, *parts_, 3);
    for (Parameter& p : parts_->all()) {
      // Convolutions of the current token alone reduce to silu.
      if (p.spec.name.find("conv1d") != std::string::npos) {
        for (int64_t i = 0; i < p.shape.elements(); ++i) host<float>(p.master)[i] = i % 4 == 3;
      } else if (p.spec.init.kind == Init::Kind::kNormal) {
        const Tensor fresh = rig.normal(p.spec.name, p.shape, 0.3);
        std::copy_n(host<float>(fresh), p.shape.elements(), host<float>(p.master));
      }
    }
    publish(rig.exec, *parts_);
    SavedStack saved;
    StepContext step;
    const Sequence sequence = make_sequence({0, kTokens});
    return made->forward(rig.exec, x_, {sequence, nullptr, &step}, saved);
  }

  Numbers weight(const std::string& name) { return numbers(parts_->find(name)->master); }
  Numbers project(const std::string& name) {
    return naive::project(numbers(x_), weight(name + ".weight"), kHidden);
  }
  naive::Rows rows(double scale, double (*map)(double)) {
    return {kTokens,
            kHeads,
            kKey,
            kValue,
            scale,
            naive::map(project("q_proj"), map),
            naive::map(project("k_proj"), map),
            project("v_proj")};
  }
  // silu on all three, q and k of length one.
  naive::Rows unit_rows() {
    naive::Rows r = rows(kScale, naive::silu);
    r.q = naive::normalized(r.q, kKey, 1e-6, naive::Of::kSum);
    r.k = naive::normalized(r.k, kKey, 1e-6, naive::Of::kSum);
    r.v = naive::map(r.v, naive::silu);
    return r;
  }
  // o_proj( RMSNorm_head(o) * gate )
  Numbers shell(const Numbers& o, const Numbers& gate = {}) {
    Numbers y = naive::normalized(o, kValue, 1e-5, naive::Of::kMean);
    for (size_t i = 0; i < gate.size(); ++i) y[i] *= gate[i];
    return naive::project(y, weight("o_proj.weight"), kHeads * kValue);
  }
  Numbers silu_gate() { return naive::map(project("g_proj"), naive::silu); }

  Tensor x_ = rig.normal("x", {kTokens, kHidden});
  OptionTable options_;
  std::unique_ptr<ParameterStore> parts_;
};

double zero(const Here&, int64_t, int64_t) { return 0.0; }
double same(double x) { return x; }
double relu(double x) { return std::max(x, 0.0); }
double elu1(double x) { return x > 0 ? x + 1 : std::exp(x); }

TEST_F(MixerOptions, FeatureMapsOfBla) {
  const std::pair<const char*, double (*)(double)> maps[] = {
      {"elu1", elu1}, {"silu", naive::silu}, {"relu", relu}, {"identity", same}};
  for (const auto& [name, map] : maps) {
    const Tensor y = forward("bla", fmt::format("feature_map = '{}'", name));
    EXPECT_TRUE(Near(y, shell(naive::decayed(rows(kScale, map), zero), silu_gate()), kTolerance))
        << name;
  }
}

TEST_F(MixerOptions, RetnetWithoutRotation) {
  const Tensor y = forward("retnet", "rope = false");
  const auto decay = [](const Here& x, int64_t, int64_t) {
    return std::log(1 - std::exp2(-5 - static_cast<double>(x.h)));
  };
  EXPECT_TRUE(Near(y, shell(naive::decayed(rows(kScale, same), decay), silu_gate()), kTolerance));
}

TEST_F(MixerOptions, FloorOfDecaysOfGla) {
  constexpr double kFloor = -0.045;  // logsigmoid(0) / 16 = -0.043: about half of them
  const Tensor y = forward("gla", fmt::format("gate_floor = {}", kFloor));
  const Numbers low = project("gk_proj.0"),
                z = naive::project(low, weight("gk_proj.1.weight"), 16, weight("gk_proj.1.bias"));
  int64_t held = 0;
  const auto decay = [&](const Here& x, int64_t i, int64_t) {
    const double g = naive::log_sigmoid(x.of(z, kKey, i)) / 16;
    held += g < kFloor;
    return std::max(g, kFloor);
  };
  EXPECT_TRUE(Near(y, shell(naive::decayed(rows(kScale, same), decay), silu_gate()), kTolerance));
  EXPECT_GT(held, 0);
}

TEST_F(MixerOptions, EpsilonOfQkNorm) {
  for (const bool joint : {false, true}) {
    const Tensor y = forward(
        "softmax",
        fmt::format("qk_norm = true\nqk_norm_joint = {}\nqk_norm_eps = 0.5\nrope = false", joint));
    naive::Rows r = rows(kScale, same);
    const int64_t width = joint ? kHeads * kKey : kKey;
    r.q = naive::normalized(r.q, width, 0.5, naive::Of::kMean);
    r.k = naive::normalized(r.k, width, 0.5, naive::Of::kMean);
    const Numbers o = naive::attend(
        r, [](double score) { return std::exp(score); }, 0.0);
    EXPECT_TRUE(Near(y, naive::project(o, weight("o_proj.weight"), kHeads * kValue), kTolerance))
        << joint;
  }
}

// The published table: slopes of the power of two below, then every other slope of twice that
// power.
TEST(Lightning, HasAlibisSlopesForAnyNumberOfHeads) {
  const std::vector<std::vector<double>> powers = {{8},
                                                   {4, 8, 2},
                                                   {2, 4, 6, 8},
                                                   {2, 4, 6, 8, 1, 3},
                                                   {1, 2, 3, 4, 5, 6, 7, 8},
                                                   {1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5}};
  for (const std::vector<double>& want : powers) {
    const std::vector<float> got = alibi_log_decays(static_cast<int64_t>(want.size()));
    ASSERT_EQ(got.size(), want.size());
    for (size_t h = 0; h < want.size(); ++h) {
      EXPECT_NEAR(got[h], -std::exp2(-want[h]), 1e-7) << h << " of " << want.size();
    }
  }
}

TEST_F(MixerOptions, LightningForgetsByItsLayer) {
  // Three heads: slopes 2^-4, 2^-8 and 2^-2.
  const double slopes[] = {std::exp2(-4), std::exp2(-8), std::exp2(-2)};
  for (const int64_t layer : {0, 1, 4}) {
    const double factor = 0.5 * (1 - static_cast<double>(layer) / 4 + 1e-5);
    const Tensor y = forward("lightning", "layer_decay = true\nlayer_factor = 0.5", layer, 5);
    const auto decay = [&](const Here& x, int64_t, int64_t) { return -slopes[x.h] * factor; };
    EXPECT_TRUE(
        Near(y, shell(naive::decayed(rows(1.0, naive::silu), decay), silu_gate()), kTolerance))
        << layer;
  }
}

// beta = 2 sigmoid.
Numbers doubled(const Numbers& z) {
  return naive::map(z, [](double x) { return 2 * naive::sigmoid(x); });
}

TEST_F(MixerOptions, NegativeEigenvaluesOfDeltanet) {
  for (const char* convolution : {"", "\nshort_conv = false"}) {
    const Tensor y = forward("deltanet", fmt::format("negative_eigenvalues = true{}", convolution));
    const Numbers beta = doubled(project("b_proj"));
    EXPECT_GT(*std::max_element(beta.begin(), beta.end()), 1.9);
    EXPECT_TRUE(Near(y, shell(naive::delta(unit_rows(), beta, zero)), kTolerance));
  }
}

TEST_F(MixerOptions, NegativeEigenvaluesOfGatedDeltanet) {
  const Tensor y = forward("gated_deltanet", "negative_eigenvalues = true");
  const Numbers z = project("a_proj"), a = weight("A_log"), bias = weight("dt_bias");
  const auto decay = [&](const Here& x, int64_t, int64_t) {
    return -std::exp(a[x.h]) * naive::softplus(x.one(z) + bias[x.h]);
  };
  EXPECT_TRUE(Near(y,
                   shell(naive::delta(unit_rows(), doubled(project("b_proj")), decay), silu_gate()),
                   kTolerance));
}

TEST_F(MixerOptions, NegativeEigenvaluesOfKda) {
  const Tensor y = forward("kda", "negative_eigenvalues = true");
  const Numbers z = naive::project(project("f_a_proj"), weight("f_b_proj.weight"), kKey),
                a = weight("A_log"), bias = weight("dt_bias");
  const auto decay = [&](const Here& x, int64_t i, int64_t) {
    return -std::exp(a[x.h]) * naive::softplus(x.of(z, kKey, i) + bias[x.h * kKey + i]);
  };
  const Numbers gate = naive::map(
      naive::project(project("g_a_proj"), weight("g_b_proj.weight"), kKey), naive::sigmoid);
  EXPECT_TRUE(Near(y, shell(naive::delta(unit_rows(), doubled(project("b_proj")), decay), gate),
                   kTolerance));
}

// Keys that repeat and beta near 2: every write reflects the state along the key, and the system
// that a chunk inverts has twos below its diagonal. The inverse's elements stay below 2, but a
// power series of it would pass through 3^63.
TEST_F(MixerOptions, TurningTheSameKeyAroundStaysExact) {
  constexpr int64_t kLong = 300;
  const Tensor q = rig.normal("q", {kLong, kKey}), v = rig.normal("v", {kLong, kValue});
  const Tensor k = rig.exec.empty({kLong, kKey}), beta = rig.exec.empty({kLong, 1}),
               decay = rig.exec.zeros({kLong, kKey});
  for (const double most : {1.0, 2.0}) {
    for (int64_t t = 0; t < kLong; ++t) {
      host<float>(beta)[t] = static_cast<float>(most);
      // Two unit keys alternate every few tokens.
      for (int64_t i = 0; i < kKey; ++i) host<float>(k)[t * kKey + i] = i == (t / 7) % 2;
    }
    const naive::Rows rows{kLong, 1, kKey, kValue, 1.0, numbers(q), numbers(k), numbers(v)};
    const Numbers want = naive::delta(rows, numbers(beta), zero);
    const Sequence sequence = make_sequence({0, kLong});
    SavedStack saved;
    const DeltaRecurrence rule({1, 1, kKey, kValue, 1.0f});
    EXPECT_TRUE(Near(rule.forward(rig.exec, {q, k, v, beta, {}}, sequence, nullptr, saved), want,
                     kTolerance))
        << most;
    const RankOneRecurrence channels({1, kKey, kValue, 1.0f});
    EXPECT_TRUE(
        Near(channels.forward(rig.exec, {q, k, v, decay, {}, beta}, sequence, nullptr, saved), want,
             kTolerance))
        << most;
  }
}

}  // namespace
}  // namespace weft::test
