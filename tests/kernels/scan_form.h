#pragma once

#include <map>
#include <memory>
#include <ostream>

#include "kernels/scan/scan_fields.h"
#include "tests/kernels/scan_law.h"

namespace weft::test {

using ScanPointer = std::shared_ptr<const ScanDescriptor>;
inline void PrintTo(const ScanPointer& scan, std::ostream* out) { *out << scan->name; }

// A descriptor over a kernel's own struct: operands come from its list of fields, and those without
// an entry in `values` are not given.
template <class Scan>
class ScanForm : public ScanDescriptor {
 public:
  using Shapes = std::vector<std::vector<int64_t>>;

  std::map<std::string, Values> values;
  std::function<Scan(const ScanCase&)> shape;  // head counts and widths
  std::function<Shapes(const ScanCase&)> state = [](const ScanCase& c) {
    return Shapes{{c.key, c.value}};
  };
  std::function<Reals(const ScanStep&)> formula;
  std::vector<int32_t> before = {0};  // tokens before a document, in turn

  std::vector<Field> fields(const ScanCase& c) const override {
    const ScanViews none;
    Scan scan = shape(c);
    // Widths may depend on which fields are given.
    static const float some = 0;
    for (const auto& f : Scan::fields()) {
      if (values.count(f.name) > 0) scan.*f.input = {&some, {1}, 1, DType::kF32, {}};
    }
    std::vector<Field> all;
    for (const auto& f : Scan::fields()) {
      Field& field = all.emplace_back();
      field.name = f.name;
      const auto entry = values.find(f.name);
      if (entry == values.end()) continue;
      field.given = true, field.values = entry->second;
      field.parameter = f.rows == kernels::FieldRows::kNone;
      field.gradient = !field.values.per_scan;
      field.heads = width_of(f, scan, c) / size_of(field.values.unit, c);
      const bool f32 = f.type == kernels::FieldType::kF32 || field.values.always_f32;
      field.dtype = f32 ? DType::kF32 : c.dtype;
    }
    return all;
  }
  Shapes states(const ScanCase& c) const override { return state(c); }
  Reals step(const ScanStep& s) const override { return formula(s); }
  double scale(const ScanCase& c) const override {
    if constexpr (requires(Scan s) { s.scale; }) return double{shape(c).scale};
    return 1;
  }
  int64_t position(const ScanCase&, int64_t document) const override {
    return before[static_cast<size_t>(document) % before.size()];
  }

  void forward(Exec& exec, const ScanCase& c, const ScanViews& v, View kept) const override {
    const std::vector<int32_t> before = all_before(c);
    run_forward(exec, scan_of(c, v, before), v, kept);
  }
  void backward(Exec& exec, const ScanCase& c, const ScanViews& v, ConstView kept) const override {
    const std::vector<int32_t> before = all_before(c);
    typename Scan::Gradients gradients;
    size_t i = 0;
    for (const auto& f : Scan::fields()) gradients.*f.gradient = v.gradient[i++];
    run_backward(exec, scan_of(c, v, before), v, gradients, kept);
  }
  int64_t kept(Exec& exec, const ScanCase& c, const ScanViews& v) const override {
    const std::vector<int32_t> before = all_before(c);
    return kept_by(exec, scan_of(c, v, before));
  }

  // How the kernels of a scan are called; forms of one scan share them.
  std::function<void(Exec&, const Scan&, const ScanViews&, View kept)> run_forward;
  std::function<void(Exec&, const Scan&, const ScanViews&, typename Scan::Gradients&,
                     ConstView kept)>
      run_backward;
  std::function<int64_t(Exec&, const Scan&)> kept_by;

 private:
  static int64_t width_of(const kernels::ScanField<Scan>& f, Scan scan, const ScanCase& c) {
    // Scans over channels read their extents from their operands.
    if constexpr (requires { scan.x; }) {
      scan.x.shape = {c.tokens(), c.value}, scan.a_log.shape = {c.value, c.key};
    }
    return f.width(scan);
  }
  std::vector<int32_t> all_before(const ScanCase& c) const {
    std::vector<int32_t> all;
    for (int64_t d = 0; d < c.count(); ++d) all.push_back(static_cast<int32_t>(position(c, d)));
    return all;
  }
  Scan scan_of(const ScanCase& c, const ScanViews& v, const std::vector<int32_t>& before) const {
    Scan scan = shape(c);
    size_t i = 0;
    for (const auto& f : Scan::fields()) scan.*f.input = v.in[i++];
    scan.documents = c.documents;
    if constexpr (requires { scan.before; }) scan.before = before;
    if constexpr (requires { scan.a_log; }) {
      // The widths of the state are the shape of this one.
      scan.a_log.shape = {c.value, c.key}, scan.a_log.row_stride = c.key;
    }
    return scan;
  }
};

inline float head_scale(const ScanCase& c) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(c.key)));
}
inline Values keys() { return {.unit = Unit::kKey}; }
inline Values value_rows() { return {.unit = Unit::kValue}; }
inline Values log_decay(Unit unit) {
  return {.unit = unit,
          .make = [](double x, double, const ScanCase& c) { return -std::abs(c.forget * x); },
          .drawn_as = "g"};
}

// o = scale * q M
inline Reals read(const ScanStep& s, const Reals& q, const Reals& m) {
  const auto key = static_cast<size_t>(s.c.key), value = static_cast<size_t>(s.c.value);
  Reals out(value);
  for (size_t a = 0; a < key; ++a) {
    const Real query = s.scale * q[a];
    for (size_t b = 0; b < value; ++b) out[b] += query * m[a * value + b];
  }
  return out;
}
// k M
inline Reals product(const Reals& k, const Reals& m, size_t value) {
  Reals out(value);
  for (size_t a = 0; a < k.size(); ++a) {
    for (size_t b = 0; b < value; ++b) out[b] += k[a] * m[a * value + b];
  }
  return out;
}

inline Values scaled(Unit unit, double size, double channels = 0) {
  return {.unit = unit, .make = [=](double x, double, const ScanCase& c) {
            return x * size * std::pow(static_cast<double>(c.key), channels);
          }};
}

// Kernels with one state, as most have: (exec, in, initial, out, final, kept) and back.
template <class Scan, class Forward, class Backward, class Kept>
void one_state(ScanForm<Scan>& form, Forward forward, Backward backward, Kept kept) {
  form.run_forward = [=](Exec& exec, const Scan& in, const ScanViews& v, View to) {
    forward(exec, in, v.entering[0], v.out, v.leaving[0], to);
  };
  form.run_backward = [=](Exec& exec, const Scan& in, const ScanViews& v,
                          typename Scan::Gradients& gradients, ConstView from) {
    gradients.d_initial_state = v.d_entering[0];
    backward(exec, in, v.entering[0], v.d_out, v.d_leaving[0], gradients, from);
  };
  form.kept_by = kept;
}

}  // namespace weft::test
