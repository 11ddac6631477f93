#include "kernels/gates/head_decay.h"
#include "core/host_access.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// g for a [rows, heads * width]
Numbers naive(const Numbers& a, const Numbers& a_log, const Numbers& dt_bias) {
  Numbers g(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t c = i % dt_bias.size(), head = c / (dt_bias.size() / a_log.size());
    g[i] = -std::exp(a_log[head]) * softplus(a[i] + dt_bias[c]);
  }
  return g;
}

TEST(HeadDecay, AgreesWithTheFormulaAndItsDifferences) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const auto& [heads, width] :
           {std::pair{1, 1}, {6, 1}, {16, 1}, {19, 1}, {1, 7}, {3, 8}}) {
        SCOPED_TRACE(fmt::format("{} {} {} heads x {}", name_of(isa), name_of(type), heads, width));
        const int64_t channels = heads * width;
        constexpr int64_t kRows = 37;
        Rig rig(2, isa);
        const Padded a(rig, "a", kRows, channels, type), da(rig, "da", kRows, channels, type);
        const Tensor a_log = rig.normal("a_log", {heads}),
                     dt_bias = rig.normal("dt_bias", {channels}),
                     g = rig.exec.empty({kRows, channels}),
                     dg = rig.normal("dg", {kRows, channels}),
                     d_a_log = rig.normal("past", {heads}),
                     d_dt_bias = rig.normal("past bias", {channels});
        const Numbers past = numbers(d_a_log), past_bias = numbers(d_dt_bias);
        const kernels::HeadDecay gate{a, a_log, dt_bias};
        kernels::head_decay_forward(rig.exec, gate, g);
        kernels::head_decay_backward(rig.exec, gate, dg, da, d_a_log, d_dt_bias);

        const Numbers na = a.numbers(), nl = numbers(a_log), nb = numbers(dt_bias),
                      nd = numbers(dg);
        EXPECT_TRUE(Near(g, naive(na, nl, nb), tolerance(DType::kF32, 1)));
        EXPECT_TRUE(Near(da.view(),
                         slopes([&](const Numbers& x) { return dot(naive(x, nl, nb), nd); }, na),
                         tolerance(type, 1)));
        EXPECT_TRUE(Near(
            d_a_log,
            plus(slopes([&](const Numbers& x) { return dot(naive(na, x, nb), nd); }, nl), past),
            tolerance(DType::kF32, kRows * width)));
        EXPECT_TRUE(
            Near(d_dt_bias,
                 plus(slopes([&](const Numbers& x) { return dot(naive(na, nl, x), nd); }, nb),
                      past_bias),
                 tolerance(DType::kF32, kRows)));
        EXPECT_TRUE(da.surroundings_kept());
      }
    }
  }
}

// softplus is relatively right from 1e-30 to 80, far below where 1 + e^x is 1.
TEST(HeadDecay, KeepsItsDigitsWhereItIsSmall) {
  for (const Isa isa : available_isas()) {
    Rig rig(1, isa);
    const Tensor a = rig.exec.empty({151, 1}), g = rig.exec.empty({151, 1});
    const Tensor zero = Tensor::zeros(rig.pool, {1}, DType::kF32);
    for (int i = 0; i < 151; ++i) host<float>(a)[i] = static_cast<float>(i - 70);
    kernels::head_decay_forward(rig.exec, {a, zero, zero}, g);
    for (int i = 0; i < 151; ++i)
      EXPECT_NEAR(host<float>(g)[i] / -softplus(i - 70.0), 1.0, 1e-6) << i - 70;
  }
}

}  // namespace
}  // namespace weft::test
