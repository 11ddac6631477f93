#include "kernels/gates/rwkv7.h"
#include "core/host_access.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

constexpr int64_t kRows = 11;

struct Sizes {
  int64_t heads, width;
  int64_t all() const { return heads * width; }
};
// One channel, fewer than a vector, a vector and a bit more, whole vectors.
const Sizes kSizes[] = {{1, 2}, {3, 5}, {2, 19}, {2, 32}};

void for_all(const std::function<void(Rig&, DType, const Sizes&)>& test) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const Sizes& sizes : kSizes) {
        SCOPED_TRACE(fmt::format("{} {} {} heads x {}", name_of(isa), name_of(type), sizes.heads,
                                 sizes.width));
        Rig rig(2, isa);
        test(rig, type, sizes);
      }
    }
  }
}

// alpha | beta | key for k, gate [rows, heads * width]
Numbers naive_keys(const Sizes& s, const Numbers& k, const Numbers& gate, const Numbers& k_k,
                   const Numbers& k_a) {
  const size_t n = k.size(), width = static_cast<size_t>(s.width);
  Numbers out(3 * n);
  for (size_t head = 0; head < n; head += width) {
    double squares = 0;
    for (size_t i = head; i < head + width; ++i) {
      const double x = k[i] * k_k[i % k_k.size()];
      squares += x * x;
    }
    for (size_t i = head; i < head + width; ++i) {
      const size_t c = i % k_k.size();
      const double kappa = k[i] * k_k[c] / std::max(std::sqrt(squares), 1e-12),
                   a = sigmoid(gate[i]);
      out[i] = -kappa;
      out[n + i] = kappa * a;
      out[2 * n + i] = k[i] * (1 + (a - 1) * k_a[c]);
    }
  }
  return out;
}

Numbers joined(const Numbers& a, const Numbers& b, const Numbers& c) {
  Numbers all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), c.begin(), c.end());
  return all;
}

// Differences of the formula have errors of 1e-9; what is computed is a sum over a head, and for
// the vectors over all rows.
TEST(Rwkv7Keys, AgreeWithTheFormulaAndItsDifferences) {
  for_all([](Rig& rig, DType type, const Sizes& s) {
    const Padded k(rig, "k", kRows, s.all(), type), gate(rig, "gate", kRows, s.all(), type);
    const Padded alpha(rig, "1", kRows, s.all(), type), beta(rig, "2", kRows, s.all(), type),
        key(rig, "3", kRows, s.all(), type);
    const Tensor k_k = rig.normal("k_k", {s.all()}), k_a = rig.normal("k_a", {s.all()});
    const kernels::Rwkv7Keys in{s.heads, k, gate, k_k, k_a};
    kernels::rwkv7_keys_forward(rig.exec, in, alpha, beta, key);
    const Numbers nk = k.numbers(), ng = gate.numbers(), nkk = numbers(k_k), nka = numbers(k_a);
    EXPECT_TRUE(Near(joined(alpha.numbers(), beta.numbers(), key.numbers()),
                     naive_keys(s, nk, ng, nkk, nka), tolerance(type, s.width)));

    const Padded d_alpha(rig, "d1", kRows, s.all(), type), d_beta(rig, "d2", kRows, s.all(), type),
        d_key(rig, "d3", kRows, s.all(), type), dk(rig, "4", kRows, s.all(), type),
        d_gate(rig, "5", kRows, s.all(), type);
    const Tensor d_k_k = rig.normal("past", {s.all()}), d_k_a = rig.normal("past", {s.all()});
    const Numbers past = numbers(d_k_k);
    kernels::rwkv7_keys_backward(rig.exec, in, {d_alpha, d_beta, d_key, dk, d_gate, d_k_k, d_k_a});
    const Numbers d = joined(d_alpha.numbers(), d_beta.numbers(), d_key.numbers());
    const auto loss = [&](const Numbers& a, const Numbers& b, const Numbers& c, const Numbers& e) {
      return dot(naive_keys(s, a, b, c, e), d);
    };
    EXPECT_TRUE(Near(dk.view(), slopes([&](const Numbers& x) { return loss(x, ng, nkk, nka); }, nk),
                     tolerance(type, s.width)));
    EXPECT_TRUE(Near(d_gate.view(),
                     slopes([&](const Numbers& x) { return loss(nk, x, nkk, nka); }, ng),
                     tolerance(type, s.width)));
    EXPECT_TRUE(
        Near(d_k_k, plus(slopes([&](const Numbers& x) { return loss(nk, ng, x, nka); }, nkk), past),
             tolerance(DType::kF32, kRows * s.width)));
    EXPECT_TRUE(
        Near(d_k_a, plus(slopes([&](const Numbers& x) { return loss(nk, ng, nkk, x); }, nka), past),
             tolerance(DType::kF32, kRows)));
    for (const Padded* p : {&alpha, &beta, &key, &dk, &d_gate}) EXPECT_TRUE(p->surroundings_kept());
  });
}

struct OutputInputs {
  Numbers o, r, k, v, gate, weight, bias, r_k;
};
constexpr double kEpsilon = 1e-2;

Numbers naive_output(const Sizes& s, const OutputInputs& in) {
  const size_t width = static_cast<size_t>(s.width);
  Numbers y(in.o.size());
  for (size_t head = 0; head < y.size(); head += width) {
    double mean = 0, variance = 0, bonus = 0;
    for (size_t i = head; i < head + width; ++i) mean += in.o[i] / static_cast<double>(s.width);
    for (size_t i = head; i < head + width; ++i) {
      variance += (in.o[i] - mean) * (in.o[i] - mean) / static_cast<double>(s.width);
      bonus += in.r[i] * in.k[i] * in.r_k[i % in.r_k.size()];
    }
    for (size_t i = head; i < head + width; ++i) {
      const size_t c = i % in.weight.size();
      const double x = (in.o[i] - mean) / std::sqrt(variance + kEpsilon);
      y[i] = (x * in.weight[c] + in.bias[c] + bonus * in.v[i]) * in.gate[i];
    }
  }
  return y;
}

TEST(Rwkv7Output, AgreesWithTheFormulaAndItsDifferences) {
  for_all([](Rig& rig, DType type, const Sizes& s) {
    const auto matrix = [&](const char* name) { return Padded(rig, name, kRows, s.all(), type); };
    const Padded o = matrix("o"), r = matrix("r"), k = matrix("k"), v = matrix("v"),
                 gate = matrix("gate"), y = matrix("y"), dy = matrix("dy");
    const Tensor weight = rig.normal("weight", {s.all()}), bias = rig.normal("bias", {s.all()}),
                 r_k = rig.normal("r_k", {s.heads, s.width});
    const kernels::Rwkv7Output in{
        s.heads, static_cast<float>(kEpsilon), o, r, k, v, gate, weight, bias, r_k};
    kernels::rwkv7_output_forward(rig.exec, in, y);
    const OutputInputs n{o.numbers(),    r.numbers(),     k.numbers(),   v.numbers(),
                         gate.numbers(), numbers(weight), numbers(bias), numbers(r_k)};
    EXPECT_TRUE(Near(y.view(), naive_output(s, n), tolerance(type, s.width)));

    const Padded d_o = matrix("1"), dr = matrix("2"), dk = matrix("3"), dv = matrix("4"),
                 d_gate = matrix("5");
    const Tensor d_weight = rig.normal("past", {s.all()}), d_bias = rig.normal("past", {s.all()}),
                 d_r_k = rig.normal("past", {s.heads, s.width});
    const Numbers past = numbers(d_weight);
    kernels::rwkv7_output_backward(rig.exec, in,
                                   {dy, d_o, dr, dk, dv, d_gate, d_weight, d_bias, d_r_k});
    const auto want = [&](Numbers OutputInputs::*which) {
      return slopes(
          [&](const Numbers& x) {
            OutputInputs moved = n;
            moved.*which = x;
            return dot(naive_output(s, moved), dy.numbers());
          },
          n.*which);
    };
    // Means over the head are taken off: a few roundings more.
    const double rows = tolerance(type, 4 * s.width);
    const double sums = tolerance(DType::kF32, kRows * s.width);
    EXPECT_TRUE(Near(d_o.view(), want(&OutputInputs::o), rows));
    EXPECT_TRUE(Near(dr.view(), want(&OutputInputs::r), rows));
    EXPECT_TRUE(Near(dk.view(), want(&OutputInputs::k), rows));
    EXPECT_TRUE(Near(dv.view(), want(&OutputInputs::v), rows));
    EXPECT_TRUE(Near(d_gate.view(), want(&OutputInputs::gate), rows));
    EXPECT_TRUE(Near(d_weight, plus(want(&OutputInputs::weight), past), sums));
    EXPECT_TRUE(Near(d_bias, plus(want(&OutputInputs::bias), past), sums));
    EXPECT_TRUE(Near(d_r_k, plus(want(&OutputInputs::r_k), past), sums));
    for (const Padded* p : {&y, &d_o, &dr, &dk, &dv, &d_gate}) EXPECT_TRUE(p->surroundings_kept());
  });
}

TEST(Rwkv7Keys, SurviveAKeyOfZero) {
  Rig rig;
  const Tensor zero = rig.exec.zeros({3, 8}), one = rig.exec.empty({8});
  std::fill_n(host<float>(one), 8, 1.0f);
  const Tensor alpha = rig.exec.empty({3, 8}), beta = rig.exec.empty({3, 8}),
               key = rig.exec.empty({3, 8});
  kernels::rwkv7_keys_forward(rig.exec, {2, zero, zero, one, one}, alpha, beta, key);
  for (const Tensor& t : {alpha, beta, key}) {
    for (const double x : numbers(t)) EXPECT_EQ(x, 0.0);
  }
}

}  // namespace
}  // namespace weft::test
