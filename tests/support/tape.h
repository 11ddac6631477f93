#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

// Exact derivatives of a formula written once, in double: every operation on a Real that depends on
// an input of the tape is recorded with its partial derivatives, and walked through backwards.
namespace weft::test {

struct Real {
  double value = 0;
  int32_t node = -1;  // place on the tape; -1: a constant

  Real() = default;
  Real(double v) : value(v) {}
  Real(double v, int32_t at) : value(v), node(at) {}
};

class Tape {
 public:
  Tape() : outer_(current_) { current_ = this; }
  ~Tape() { current_ = outer_; }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Real input(double value) { return {value, add({})}; }

  // Adds to the derivative of what is walked back from: seed * d(loss)/d(x).
  void seed(const Real& x, double derivative) {
    if (x.node >= 0) derivatives()[static_cast<size_t>(x.node)] += derivative;
  }
  void walk_back() {
    derivatives();
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Node& n = nodes_[i];
      if (n.a >= 0) derivatives_[static_cast<size_t>(n.a)] += n.da * derivatives_[i];
      if (n.b >= 0) derivatives_[static_cast<size_t>(n.b)] += n.db * derivatives_[i];
    }
  }
  double derivative(const Real& input) const {
    return derivatives_[static_cast<size_t>(input.node)];
  }

  static Real record(double value, const Real& a, double da, const Real& b, double db) {
    if (a.node < 0 && b.node < 0) return value;
    return {value, current_->add({a.node, b.node, da, db})};
  }

 private:
  struct Node {
    int32_t a = -1, b = -1;
    double da = 0, db = 0;
  };
  int32_t add(const Node& node) {
    nodes_.push_back(node);
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  std::vector<double>& derivatives() {
    derivatives_.resize(nodes_.size());
    return derivatives_;
  }

  static inline Tape* current_ = nullptr;
  Tape* outer_;
  std::vector<Node> nodes_;
  std::vector<double> derivatives_;
};

inline Real operator+(const Real& a, const Real& b) {
  return Tape::record(a.value + b.value, a, 1, b, 1);
}
inline Real operator-(const Real& a, const Real& b) {
  return Tape::record(a.value - b.value, a, 1, b, -1);
}
inline Real operator*(const Real& a, const Real& b) {
  return Tape::record(a.value * b.value, a, b.value, b, a.value);
}
inline Real operator/(const Real& a, const Real& b) {
  return Tape::record(a.value / b.value, a, 1 / b.value, b, -a.value / (b.value * b.value));
}
inline Real operator-(const Real& a) { return Tape::record(-a.value, a, -1, {}, 0); }
inline Real& operator+=(Real& a, const Real& b) { return a = a + b; }
inline Real& operator-=(Real& a, const Real& b) { return a = a - b; }
inline Real exp(const Real& a) {
  const double e = std::exp(a.value);
  return Tape::record(e, a, e, {}, 0);
}
inline Real sqrt(const Real& a) {
  const double root = std::sqrt(a.value);
  return Tape::record(root, a, 0.5 / root, {}, 0);
}

}  // namespace weft::test
