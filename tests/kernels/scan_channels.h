#pragma once

#include "kernels/scan/elementwise_scan.h"
#include "tests/kernels/scan_form.h"

// Descriptors of scans over channels.
namespace weft::test {

using kernels::SelectiveScan;
using kernels::StaticScan;

// Scans over channels: value channels with `key` numbers of state each. `forget` is the size of
// steps, which are never quite zero: a static scan takes their logarithm.
template <class Scan, class Forward, class Backward>
std::shared_ptr<ScanForm<Scan>> elementwise(const char* name, bool skip, Forward forward,
                                            Backward backward) {
  auto form = std::make_shared<ScanForm<Scan>>();
  form->name = name, form->keeps = false, form->one_head = true, form->strongest_decay = 1e4;
  form->weakest_decay = 1;
  form->bound = [](const ScanCase&, Isa) { return 1e-5; };
  form->tokens_at_widths = 67, form->key_at_lengths = 4, form->wide_value = 130;
  form->widths.clear();
  for (const int64_t channels : {1, 7, 8, 63, 64, 65, 130}) {
    for (const int64_t states : {1, 3, 16}) form->widths.emplace_back(states, channels);
  }
  form->values = {{"x", value_rows()}, {"a_log", {.unit = Unit::kBoth}}};
  if (skip) form->values["skip"] = value_rows();
  form->shape = [](const ScanCase&) { return Scan{}; };
  form->run_forward = [=](Exec& exec, const Scan& in, const ScanViews& v, View) {
    forward(exec, in, v.entering[0], v.out, v.leaving[0]);
  };
  form->run_backward = [=](Exec& exec, const Scan& in, const ScanViews& v,
                           typename Scan::Gradients& gradients, ConstView) {
    gradients.d_initial_state = v.d_entering[0];
    backward(exec, in, v.entering[0], v.d_out, v.d_leaving[0], gradients);
  };
  return form;
}

// One step of `channel`, whose factors are given: dt, and b, c and the logarithms of rates n.
template <class At>
Real channel_step(const ScanStep& s, size_t channel, const Real& dt, const Real& x, At at) {
  const auto key = static_cast<size_t>(s.c.key), value = static_cast<size_t>(s.c.value);
  Real y;
  for (size_t n = 0; n < key; ++n) {
    const auto& [b, c, rate] = at(n);
    Real& m = s.state[0][n * value + channel];
    m = exp(-(dt * exp(rate))) * m + dt * b * x;
    y += c * m;
  }
  return y;
}

inline ScanPointer selective(const char* name, bool skip) {
  auto form = elementwise<SelectiveScan>(name, skip, kernels::selective_scan_forward,
                                         kernels::selective_scan_backward);
  form->values["dt"] = {
      .unit = Unit::kValue,
      .make = [](double x, double, const ScanCase& c) { return std::abs(c.forget * x); },
      .drawn_as = "step"};
  form->values["b"] = form->values["c"] = keys();
  form->formula = [](const ScanStep& s) {  // x, dt, b, c, a_log, skip
    Reals out;
    for (size_t ch = 0; ch < s[0].size(); ++ch) {
      out.push_back(channel_step(s, ch, s[1][ch], s[0][ch], [&](size_t n) {
        return std::tie(s[2][n], s[3][n], s[4][ch * s[2].size() + n]);
      }));
      if (!s[5].empty()) out[ch] += s[5][ch] * s[0][ch];
    }
    return out;
  };
  return form;
}

inline ScanPointer fixed(const char* name, bool skip) {
  auto form = elementwise<StaticScan>(name, skip, kernels::static_scan_forward,
                                      kernels::static_scan_backward);
  form->values["log_dt"] = {
      .unit = Unit::kValue,
      .make = [](double x, double,
                 const ScanCase& c) { return std::log(std::max(1e-6, std::abs(c.forget * x))); },
      .drawn_as = "step"};
  form->values["b"] = form->values["c"] = {.unit = Unit::kBoth, .may_cancel = true};
  form->states_alone = false;
  form->formula = [](const ScanStep& s) {  // x, log_dt, a_log, b, c, skip
    Reals out;
    for (size_t ch = 0; ch < s[0].size(); ++ch) {
      const size_t first = ch * static_cast<size_t>(s.c.key);
      out.push_back(channel_step(s, ch, exp(s[1][ch]), s[0][ch], [&](size_t n) {
        return std::tie(s[3][first + n], s[4][first + n], s[2][first + n]);
      }));
      if (!s[5].empty()) out[ch] += s[5][ch] * s[0][ch];
    }
    return out;
  };
  return form;
}

}  // namespace weft::test
