#pragma once

// Backward of a layer against differences of its forward, along a direction u:
//   <grad, u>  against  D(h) = (L(p + h u) - L(p - h u)) / 2h,      L = <cotangent, forward(p)>
// u has length one and lies halfway between the gradient and a random direction: an error in any
// part of the gradient shows, and the signal is of the gradient's own size g. (4 D(h/2) - D(h)) / 3
// cancels the h^2 term, so that what remains is rounding: L is a sum of f32 numbers, each wrong by
// a few epsilon = 6e-8, so D(h) is wrong by about 10 epsilon |L| / h, D(h/2) by twice that, and the
// combination by (4 * 2 + 1) / 3 = 3 times that.
// L may have edges: maxima, choices of memories. A step that crosses one says nothing about the
// gradient; it is detected because D(h) and D(h/2) differ, and another direction is taken.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "core/host_access.h"
#include "layers/context/build.h"
#include "parallel/parameter_values.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {

inline constexpr int64_t kHidden = 32;
inline constexpr double kStep = 1e-2;
inline constexpr double kRounding = 3 * 10 * 6e-8 / kStep;

inline double dot(const Tensor& a, const Tensor& b) {
  const auto x = numbers(a), y = numbers(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

inline void shift(const Tensor& t, const Tensor& direction, double by) {
  for (int64_t i = 0; i < t.elements(); ++i) {
    host<float>(t)[i] += static_cast<float>(by * host<float>(direction)[i]);
  }
}

class Gradients : public testing::Test {
 protected:
  static constexpr int kDirections = 6;

  // Weights large enough that every term of the gradient matters.
  void prepare() {
    store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kAllocate);
    initialize(rig.exec, store, 3);
    for (Parameter& p : store.all()) {
      if (p.spec.init.kind != Init::Kind::kNormal) continue;
      const Tensor fresh = rig.normal(p.spec.name, p.shape, 0.3);
      std::copy_n(host<float>(fresh), p.shape.elements(), host<float>(p.master));
    }
    publish(rig.exec, store);
  }

  Tensor direction(const std::string& what, const Tensor& grad, double size) {
    const Tensor u = rig.normal("direction " + what, grad.shape());
    const double random = std::sqrt(dot(u, u));
    for (int64_t i = 0; i < u.elements(); ++i) {
      host<float>(u)[i] =
          static_cast<float>(host<float>(u)[i] / random + host<float>(grad)[i] / size);
    }
    const double length = std::sqrt(dot(u, u));
    for (int64_t i = 0; i < u.elements(); ++i) host<float>(u)[i] /= static_cast<float>(length);
    return u;
  }

  Build build() { return {.store = store, .scope = "t.", .hidden = kHidden}; }

  double difference(const Tensor& value, const Tensor& u, double h,
                    const std::function<double()>& loss) {
    const auto at = [&](double by) {
      shift(value, u, by);
      publish(rig.exec, store);
      return loss();
    };
    const double above = at(h), below = at(-2 * h);
    at(h);
    return (above - below) / (2 * h);
  }

  // `loss` computes L; the gradient of `value` is `grad`.
  void expect_derivative(const std::string& what, const Tensor& value, const Tensor& grad,
                         const std::function<double()>& loss) {
    const double size = std::sqrt(dot(grad, grad));
    ASSERT_GT(size, 0.0) << what << " has no gradient at all";
    const double allowed = 2e-3 * size + kRounding * (std::abs(loss()) + 1);
    for (int attempt = 0; attempt < kDirections; ++attempt) {
      const Tensor u =
          direction(what + std::string(static_cast<size_t>(attempt), '\''), grad, size);
      const double coarse = difference(value, u, kStep, loss),
                   fine = difference(value, u, kStep / 2, loss), want = (4 * fine - coarse) / 3;
      const bool edge = std::abs(coarse - fine) > allowed;
      if (edge && std::abs(dot(grad, u) - want) > allowed && attempt + 1 < kDirections) continue;
      EXPECT_NEAR(dot(grad, u), want, allowed) << what << (edge ? ", over an edge" : "");
      return;
    }
  }

  void expect_all_weights(const std::function<double()>& loss) {
    for (Parameter& p : store.all()) {
      if (!p.spec.buffer) expect_derivative(p.spec.name, p.master, p.grad, loss);
    }
  }

  Rig rig;
  ParameterStore store;
};

}  // namespace weft::test
