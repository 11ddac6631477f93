#pragma once

#include "kernels/scan/momentum_scan.h"
#include "kernels/scan/norm_descent_scan.h"
#include "tests/kernels/scan_form.h"

// Descriptors of scans that descend in mini-batches.
namespace weft::test {

using kernels::MomentumScan;
using kernels::NormDescentScan;

// The state and the anchor of mini-batches: M, S, A.
inline ScanPointer momentum(const char* name, int64_t mini_batch, std::vector<int32_t> before,
                            bool with_momentum) {
  auto form = std::make_shared<ScanForm<MomentumScan>>();
  form->name = name, form->before = std::move(before);
  form->repeats = false, form->longest = 70;
  form->bound = [](const ScanCase& c, Isa) { return tolerance(DType::kF32, 70 * c.key * c.value); };
  form->gradients = 10;  // they pass through the states of all later tokens and back
  form->values = {{"q", scaled(Unit::kKey, 0.5)},
                  {"k", scaled(Unit::kKey, 0.87, -0.5)},
                  {"v", value_rows()},
                  {"theta", scaled(Unit::kOne, 0.3)}};
  if (with_momentum) {
    form->values["alpha"] = scaled(Unit::kOne, 0.2);
    form->values["eta"] = scaled(Unit::kOne, 0.4);
  }
  form->shape = [=](const ScanCase& c) {
    MomentumScan in;
    in.heads = c.heads, in.key = c.key, in.value = c.value;
    in.mini_batch = mini_batch, in.scale = 0.7f;
    return in;
  };
  form->state = [](const ScanCase& c) {
    return std::vector<std::vector<int64_t>>(3, {c.key, c.value});
  };
  form->formula = [=](const ScanStep& s) {
    Reals &m = s.state[0], &momentum = s.state[1], &anchor = s.state[2];
    const size_t value = s[2].size();
    if (s.position % mini_batch == 0) anchor = m;
    const Reals seen = product(s[1], anchor, value);
    const Real eta = s[5].empty() ? Real(0) : s[5][0];
    const Real kept = s[4].empty() ? Real(1) : 1 - s[4][0];
    for (size_t i = 0; i < m.size(); ++i) {
      const Real step = s[3][0] * s[1][i / value] * (seen[i % value] - s[2][i % value]);
      momentum[i] = eta * momentum[i] - step;
      m[i] = kept * m[i] + momentum[i];
    }
    if ((s.position + 1) % mini_batch == 0) anchor = m;
    return read(s, s[0], m);
  };
  form->run_forward = [](Exec& exec, const MomentumScan& in, const ScanViews& v, View kept) {
    const auto& [e, l] = std::tie(v.entering, v.leaving);
    kernels::momentum_scan_forward(exec, in, {e[0], e[1], e[2]}, v.out, {l[0], l[1], l[2]}, kept);
  };
  form->run_backward = [](Exec& exec, const MomentumScan& in, const ScanViews& v,
                          kernels::MomentumScanGradients& gradients, ConstView kept) {
    const auto& [e, l, d] = std::tie(v.entering, v.d_leaving, v.d_entering);
    gradients.entering = {d[0], d[1], d[2]};
    kernels::momentum_scan_backward(exec, in, {e[0], e[1], e[2]}, v.d_out, {l[0], l[1], l[2]},
                                    gradients, kept);
  };
  form->kept_by = kernels::momentum_scan_kept;
  return form;
}

// u = d loss / d z at z = k A + a.
inline Reals norm_step(const ScanStep& s, double epsilon) {
  const size_t width = s[0].size();
  const auto d = static_cast<double>(width);
  Reals z = product(s[1], s.state[2], width), e(width);
  Real mean, var, sum, along;
  for (size_t j = 0; j < width; ++j) z[j] += s.state[3][j], mean += z[j] / d;
  for (const Real& x : z) var += (x - mean) * (x - mean) / d;
  const Real inv = 1 / sqrt(var + epsilon);
  for (size_t j = 0; j < width; ++j) {
    z[j] = (z[j] - mean) * inv;
    e[j] = (s[4][j] * z[j] + s[5][j] - (s[2][j] - s[1][j])) * s[4][j];
    sum += e[j], along += e[j] * z[j];
  }
  for (size_t j = 0; j < width; ++j) e[j] = (e[j] - sum / d - z[j] * along / d) * inv;
  return e;
}

// The inner model and its anchor: M, n, A, a.
inline ScanPointer norm_descent(const char* name, int64_t mini_batch, std::vector<int32_t> before) {
  constexpr double kEpsilon = 0.01;  // large: differences see a smooth norm
  auto form = std::make_shared<ScanForm<NormDescentScan>>();
  form->name = name, form->before = std::move(before);
  form->repeats = false;
  form->square = true, form->states_alone = false;
  form->longest = mini_batch == 1 ? 20 : 75;
  form->widths = {{1, 1}, {3, 3}, {5, 5}, {8, 8}, {16, 16}, {24, 24}, {64, 64}};
  form->bound = [](const ScanCase& c, Isa) { return tolerance(DType::kF32, 70 * c.key * c.value); };
  form->gradients = 10;  // they pass through the norms of all later mini-batches and back
  form->values = {{"q", scaled(Unit::kKey, 0.5)},
                  {"k", scaled(Unit::kKey, 0.9, -0.5)},
                  {"v", keys()},
                  {"eta", scaled(Unit::kOne, 0.2)},
                  {"w", keys()},
                  {"c", scaled(Unit::kKey, 0.3)}};
  form->shape = [=](const ScanCase& c) {
    NormDescentScan in;
    in.heads = c.heads, in.width = c.key, in.mini_batch = mini_batch;
    in.scale = 0.7f, in.epsilon = static_cast<float>(kEpsilon);
    return in;
  };
  form->state = [](const ScanCase& c) {
    return std::vector<std::vector<int64_t>>{{c.key, c.key}, {c.key}, {c.key, c.key}, {c.key}};
  };
  form->formula = [=](const ScanStep& s) {
    std::vector<Reals>& m = s.state;
    const size_t width = s[0].size();
    if (s.position % mini_batch == 0) m[2] = m[0], m[3] = m[1];
    const Reals u = norm_step(s, double{static_cast<float>(kEpsilon)});
    for (size_t i = 0; i < m[0].size(); ++i) {
      m[0][i] -= s[3][0] * s[1][i / width] * u[i % width];
    }
    Reals out = read(s, s[0], m[0]);
    for (size_t j = 0; j < width; ++j) out[j] += m[1][j] -= s[3][0] * u[j];
    if ((s.position + 1) % mini_batch == 0) m[2] = m[0], m[3] = m[1];
    return out;
  };
  form->run_forward = [](Exec& exec, const NormDescentScan& in, const ScanViews& v, View kept) {
    const auto& [e, l] = std::tie(v.entering, v.leaving);
    kernels::norm_descent_scan_forward(exec, in, {e[0], e[1], e[2], e[3]}, v.out,
                                       {l[0], l[1], l[2], l[3]}, kept);
  };
  form->run_backward = [](Exec& exec, const NormDescentScan& in, const ScanViews& v,
                          kernels::NormDescentGradients& gradients, ConstView kept) {
    const auto& [e, l, d] = std::tie(v.entering, v.d_leaving, v.d_entering);
    gradients.entering = {d[0], d[1], d[2], d[3]};
    kernels::norm_descent_scan_backward(exec, in, {e[0], e[1], e[2], e[3]}, v.d_out,
                                        {l[0], l[1], l[2], l[3]}, gradients, kept);
  };
  form->kept_by = kernels::norm_descent_scan_kept;
  return form;
}

}  // namespace weft::test
