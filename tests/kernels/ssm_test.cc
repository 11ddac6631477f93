#include "kernels/gates/ssm.h"
#include "core/host_access.h"

#include "kernels/gates/output_gate.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

double softplus(double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }

// Widths: below, at and above a vector of any instruction set, in rows that are parts of wider
// ones.
constexpr int64_t kWidths[] = {1, 7, 16, 33};
constexpr int64_t kRows = 11;

Numbers steps_of(const Numbers& z, const Numbers& bias) {
  Numbers dt(z.size());
  for (size_t i = 0; i < z.size(); ++i) dt[i] = softplus(z[i] + bias[i % bias.size()]);
  return dt;
}

TEST(TimeStep, IsTheSoftplusOfProjectionAndBias) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const int64_t width : kWidths) {
        Rig rig(2, isa);
        const Padded z(rig, "z", kRows, width, type, 3.0), dz(rig, "dz", kRows, width, type);
        const Tensor bias = rig.normal("bias", {width}), d_dt = rig.normal("d_dt", {kRows, width}),
                     dt = rig.exec.empty({kRows, width}), d_bias = rig.exec.zeros({width});
        kernels::time_step_forward(rig.exec, z, bias, dt);
        EXPECT_TRUE(Near(dt, steps_of(z.numbers(), numbers(bias)), tolerance(DType::kF32, 1)));
        kernels::time_step_backward(rig.exec, z, bias, d_dt, dz, d_bias);
        const auto loss_z = [&](const Numbers& x) {
          return dot(steps_of(x, numbers(bias)), numbers(d_dt));
        };
        const auto loss_bias = [&](const Numbers& x) {
          return dot(steps_of(z.numbers(), x), numbers(d_dt));
        };
        EXPECT_TRUE(Near(dz.numbers(), slopes(loss_z, z.numbers()), tolerance(type, 1)));
        EXPECT_TRUE(Near(d_bias, slopes(loss_bias, numbers(bias)), tolerance(DType::kF32, kRows)));
        EXPECT_TRUE(dz.surroundings_kept());
      }
    }
  }
}

// Near zero log(1 + u) has lost the digits of u.
TEST(TimeStep, KeepsTheDigitsOfSmallSteps) {
  Rig rig;
  const Tensor z = rig.exec.empty({1, 1}), bias = rig.exec.zeros({1}), dt = rig.exec.empty({1, 1});
  for (const float x : {-5.0f, -9.0f, -14.0f}) {
    host<float>(z)[0] = x;
    kernels::time_step_forward(rig.exec, z, bias, dt);
    EXPECT_NEAR(host<float>(dt)[0] / softplus(x), 1.0, 1e-6);
  }
}

TEST(SiluGate, MultipliesBySiluOfTheGate) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const int64_t width : kWidths) {
        Rig rig(2, isa);
        const Padded x(rig, "x", kRows, width, type), gate(rig, "gate", kRows, width, type),
            dy(rig, "dy", kRows, width, DType::kF32), y(rig, "y", kRows, width, type),
            dx(rig, "dx", kRows, width, DType::kF32), d_gate(rig, "d_gate", kRows, width, type);
        const auto gated = [](const Numbers& a, const Numbers& z) {
          Numbers out(a.size());
          for (size_t i = 0; i < a.size(); ++i) out[i] = a[i] * silu(z[i]);
          return out;
        };
        kernels::output_gate_forward(rig.exec, kernels::GateActivation::kSilu, x, gate, y);
        EXPECT_TRUE(Near(y.numbers(), gated(x.numbers(), gate.numbers()), tolerance(type, 1)));
        kernels::output_gate_backward(rig.exec, kernels::GateActivation::kSilu, x, gate, dy, dx,
                                      d_gate);
        const auto of_x = [&](const Numbers& a) {
          return dot(gated(a, gate.numbers()), dy.numbers());
        };
        const auto of_gate = [&](const Numbers& z) {
          return dot(gated(x.numbers(), z), dy.numbers());
        };
        EXPECT_TRUE(Near(dx.numbers(), slopes(of_x, x.numbers()), tolerance(DType::kF32, 1)));
        EXPECT_TRUE(Near(d_gate.numbers(), slopes(of_gate, gate.numbers()), tolerance(type, 1)));
        EXPECT_TRUE(y.surroundings_kept() && dx.surroundings_kept() && d_gate.surroundings_kept());
      }
    }
  }
}

// A loss as a function of v, g and skip x, in double: <dv, dt x> + <dg, -dt e^a> + <dy, skip x>.
struct HeadLoss {
  int64_t heads, width;
  Numbers dv, dg, dy;
  double operator()(const Numbers& x, const Numbers& dt, const Numbers& a_log,
                    const Numbers& skip) const {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<int64_t>(i), head = at / width % heads;
      sum += x[i] * (dv[i] * dt[static_cast<size_t>(at / width)] +
                     dy[i] * skip[static_cast<size_t>(head)]);
    }
    for (size_t i = 0; i < dt.size(); ++i) {
      sum -= dg[i] * dt[i] * std::exp(a_log[i % static_cast<size_t>(heads)]);
    }
    return sum;
  }
};

TEST(HeadSteps, ScaleValuesAndGiveDecays) {
  constexpr int64_t kHeads = 3;
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const int64_t width : kWidths) {
        Rig rig(2, isa);
        const Padded x(rig, "x", kRows, kHeads * width, type),
            dx(rig, "dx", kRows, kHeads * width, type);
        const Tensor dt = rig.normal("dt", {kRows, kHeads}), a_log = rig.normal("a", {kHeads}),
                     skip = rig.normal("skip", {kHeads}),
                     dv = rig.normal("dv", {kRows, kHeads * width}),
                     dg = rig.normal("dg", {kRows, kHeads}), dy = rig.normal("dy", dv.shape());
        const Tensor v = rig.exec.empty(dv.shape(), type), g = rig.exec.empty(dg.shape()),
                     y = rig.exec.zeros(dv.shape()), d_dt = rig.exec.empty(dt.shape()),
                     d_a_log = rig.exec.zeros({kHeads}), d_skip = rig.exec.zeros({kHeads});
        const kernels::HeadSteps steps{x, dt, a_log, skip};
        kernels::head_steps_forward(rig.exec, steps, v, g);
        kernels::add_head_skip(rig.exec, steps, y);
        const HeadLoss loss{kHeads, width, numbers(dv), numbers(dg), numbers(dy)};
        const Numbers nx = x.numbers(), ndt = numbers(dt), na = numbers(a_log), ns = numbers(skip);
        const double seen =
            dot(numbers(v), loss.dv) + dot(numbers(g), loss.dg) + dot(numbers(y), loss.dy);
        EXPECT_NEAR(seen, loss(nx, ndt, na, ns), type == DType::kF32 ? 1e-4 : 0.3);
        kernels::head_steps_backward(rig.exec, steps, {dv, dg, dy, dx, d_dt, d_a_log, d_skip});
        const double f32 = tolerance(DType::kF32, kRows * width);
        EXPECT_TRUE(Near(dx.numbers(),
                         slopes([&](const Numbers& n) { return loss(n, ndt, na, ns); }, nx),
                         tolerance(type, 2)));
        EXPECT_TRUE(
            Near(d_dt, slopes([&](const Numbers& n) { return loss(nx, n, na, ns); }, ndt), f32));
        EXPECT_TRUE(
            Near(d_a_log, slopes([&](const Numbers& n) { return loss(nx, ndt, n, ns); }, na), f32));
        EXPECT_TRUE(
            Near(d_skip, slopes([&](const Numbers& n) { return loss(nx, ndt, na, n); }, ns), f32));
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
