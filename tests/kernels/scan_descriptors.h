#pragma once

#include "kernels/scan/delta_scan.h"
#include "kernels/scan/diagonal_scan.h"
#include "kernels/scan/rank_one_scan.h"
#include "kernels/scan/scalar_scan.h"
#include "tests/kernels/scan_channels.h"
#include "tests/kernels/scan_descents.h"

// One descriptor for every form of every scan. Field numbers in formulas follow the lists of
// kernels/scan/<x>_scan.cc.
namespace weft::test {

using kernels::DeltaScan;
using kernels::DiagonalScan;
using kernels::RankOneScan;
using kernels::ScalarScan;

enum class Decay : uint8_t { kNone, kPerScan, kPerToken };
enum class Sharing : uint8_t { kKeysAndValues, kQueriesAndKeys };

inline ScanPointer scalar(const char* name, Decay decay, Sharing sharing) {
  auto form = std::make_shared<ScanForm<ScalarScan>>();
  form->name = name;
  form->shares = true, form->states_alone = false, form->cuts = true;
  form->strongest_decay = decay == Decay::kNone ? 0 : 30;
  form->values = {{"q", keys()}, {"k", keys()}, {"v", value_rows()}};
  if (decay != Decay::kNone) form->values["log_decay"] = log_decay(Unit::kOne);
  if (decay == Decay::kPerScan) form->values["log_decay"].per_scan = true;
  form->shape = [=](const ScanCase& c) {
    ScalarScan in;
    in.heads = c.heads, in.kv_heads = c.shared, in.key = c.key, in.value = c.value;
    in.scale = head_scale(c);
    if (sharing == Sharing::kQueriesAndKeys) in.qk_heads = c.shared, in.kv_heads = 0;
    return in;
  };
  form->formula = [](const ScanStep& s) {
    const Real decay = s[3].empty() ? Real(1) : exp(s[3][0]);
    const size_t value = s[2].size();
    for (size_t i = 0; i < s.state[0].size(); ++i) {
      s.state[0][i] = decay * s.state[0][i] + s[1][i / value] * s[2][i % value];
    }
    return read(s, s[0], s.state[0]);
  };
  one_state(*form, kernels::scalar_scan_forward, kernels::scalar_scan_backward,
            kernels::scalar_scan_kept);
  return form;
}

inline ScanPointer delta(const char* name, bool decay) {
  auto form = std::make_shared<ScanForm<DeltaScan>>();
  form->name = name;
  form->shares = true, form->strength = true, form->strongest_decay = decay ? 30 : 0;
  form->forgets = decay;
  form->exact_when_repeated.pop_back();
  // Keys of length one that have a single number are all alike.
  std::erase_if(form->widths, [](const auto& width) { return width.first < 5; });
  const auto strength = [](double x, double, const ScanCase& c) {
    return c.beta + c.spread * std::tanh(x);
  };
  form->values = {{"q", keys()},
                  {"k", {.unit = Unit::kKey, .unit_length = true}},
                  {"v", value_rows()},
                  {"beta", {.unit = Unit::kOne, .make = strength}}};
  if (decay) form->values["log_decay"] = log_decay(Unit::kOne);
  form->shape = [](const ScanCase& c) {
    DeltaScan in;
    in.heads = c.heads, in.qk_heads = c.shared, in.key = c.key, in.value = c.value;
    in.scale = head_scale(c);
    return in;
  };
  form->formula = [](const ScanStep& s) {
    Reals& m = s.state[0];
    const size_t value = s[2].size();
    if (!s[4].empty()) {
      const Real decay = exp(s[4][0]);
      for (Real& x : m) x = decay * x;
    }
    const Reals seen = product(s[1], m, value);
    Reals write(value);
    for (size_t b = 0; b < value; ++b) write[b] = s[3][0] * (s[2][b] - seen[b]);
    for (size_t i = 0; i < m.size(); ++i) m[i] += s[1][i / value] * write[i % value];
    return read(s, s[0], m);
  };
  one_state(*form, kernels::delta_scan_forward, kernels::delta_scan_backward,
            kernels::delta_scan_kept);
  return form;
}

// Decays per key channel, per value channel, or both; or a bonus besides those per key channel.
inline ScanPointer diagonal(const char* name, bool by_key, bool by_value, bool bonus) {
  auto form = std::make_shared<ScanForm<DiagonalScan>>();
  form->name = name;
  form->shares = true, form->states_alone = !bonus, form->strongest_decay = 1000;
  form->values = {{"q", keys()}, {"k", keys()}, {"v", value_rows()}};
  if (by_key) form->values["log_decay"] = log_decay(Unit::kKey);
  if (by_value) form->values["value_log_decay"] = log_decay(Unit::kValue);
  if (by_value) form->values["value_log_decay"].drawn_as = "h";
  if (bonus) form->values["bonus"] = keys();
  if (by_value) {
    for (const char* field : {"log_decay", "value_log_decay"}) {
      const auto entry = form->values.find(field);
      if (entry != form->values.end()) entry->second.beside_one = true;
    }
  }
  form->shape = [](const ScanCase& c) {
    DiagonalScan in;
    in.heads = c.heads, in.kv_heads = c.shared, in.key = c.key, in.value = c.value;
    in.scale = head_scale(c);
    return in;
  };
  form->formula = [](const ScanStep& s) {
    Reals& m = s.state[0];
    const size_t value = s[2].size();
    Reals seen;  // the state before the token, with the bonus
    if (!s[4].empty()) {
      seen = m;
      for (size_t i = 0; i < m.size(); ++i) {
        seen[i] += s[4][i / value] * s[1][i / value] * s[2][i % value];
      }
    }
    for (size_t i = 0; i < m.size(); ++i) {
      if (!s[3].empty()) m[i] = exp(s[3][i / value]) * m[i];
      if (!s[5].empty()) m[i] = exp(s[5][i % value]) * m[i];
      m[i] += s[1][i / value] * s[2][i % value];
    }
    return read(s, s[0], seen.empty() ? m : seen);
  };
  one_state(*form, kernels::diagonal_scan_forward, kernels::diagonal_scan_backward,
            kernels::diagonal_scan_kept);
  return form;
}

// Inputs as the mixers make them: alpha = -kappa, beta = kappa * (0, 1) with kappa of length one;
// keys of length one and beta in (0, 1) for the delta rule.
inline ScanPointer rank_one(const char* name, bool as_delta) {
  auto form = std::make_shared<ScanForm<RankOneScan>>();
  form->name = name, form->strongest_decay = 1000;
  form->values = {{"q", keys()}, {"v", value_rows()}, {"log_decay", log_decay(Unit::kKey)}};
  if (as_delta) {
    form->values["k"] = {.unit = Unit::kKey, .unit_length = true};
    form->values["beta"] = {.unit = Unit::kOne,
                            .make = [](double x, double, const ScanCase&) { return sigmoid(x); },
                            .always_f32 = true};
  } else {
    form->values["k"] = {.unit = Unit::kKey, .make = [](double x, double, const ScanCase& c) {
                           return x / std::sqrt(static_cast<double>(c.key));
                         }};
    form->values["alpha"] = {.unit = Unit::kKey, .unit_length = true};
    form->values["beta"] = {
        .unit = Unit::kKey,
        .make = [](double x, double alpha, const ScanCase&) { return -alpha * sigmoid(x); },
        .other = "alpha"};
  }
  form->shape = [](const ScanCase& c) {
    RankOneScan in;
    in.heads = c.heads, in.key = c.key, in.value = c.value;
    in.scale = head_scale(c);
    return in;
  };
  form->formula = [](const ScanStep& s) {
    Reals& m = s.state[0];
    const size_t value = s[2].size();
    const bool general = !s[4].empty();
    Reals z = general ? product(s[4], m, value) : Reals{};
    for (size_t i = 0; i < m.size(); ++i) m[i] = exp(s[3][i / value]) * m[i];
    if (!general) {
      z = product(s[1], m, value);
      for (size_t b = 0; b < value; ++b) z[b] = s[5][0] * (s[2][b] - z[b]);
    }
    for (size_t i = 0; i < m.size(); ++i) {
      const size_t a = i / value, b = i % value;
      m[i] += general ? s[5][a] * z[b] + s[1][a] * s[2][b] : s[1][a] * z[b];
    }
    return read(s, s[0], m);
  };
  one_state(*form, kernels::rank_one_scan_forward, kernels::rank_one_scan_backward,
            kernels::rank_one_scan_kept);
  return form;
}

inline std::vector<ScanPointer> all_scans() {
  return {scalar("Scalar", Decay::kPerToken, Sharing::kKeysAndValues),
          scalar("ScalarSharingQueries", Decay::kPerToken, Sharing::kQueriesAndKeys),
          scalar("ScalarOneDecay", Decay::kPerScan, Sharing::kKeysAndValues),
          scalar("ScalarNoDecay", Decay::kNone, Sharing::kKeysAndValues),
          delta("Delta", false),
          delta("GatedDelta", true),
          diagonal("Diagonal", true, false, false),
          diagonal("DiagonalBonus", true, false, true),
          diagonal("TwoSided", true, true, false),
          diagonal("ByValue", false, true, false),
          rank_one("RankOne", false),
          rank_one("RankOneDelta", true),
          momentum("Momentum", 1, {0}, true),
          momentum("MomentumBatches", 4, {3, 0, 2}, true),
          momentum("MomentumLongBatches", 100, {5}, true),
          momentum("Descent", 3, {1, 0}, false),
          norm_descent("NormDescent", 1, {0}),
          norm_descent("NormDescentBatches", 4, {3, 0, 2}),
          norm_descent("NormDescentLongBatches", 66, {0, 60}),
          norm_descent("NormDescentPartOfABatch", 100, {5}),
          selective("Selective", true),
          selective("SelectiveNoSkip", false),
          fixed("Static", true),
          fixed("StaticNoSkip", false)};
}

}  // namespace weft::test
