#include "launcher/bench/bench_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/rng.h"
#include "core/host_access.h"
#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

constexpr uint64_t kSeed = 1;

void check(const RoutingShape& s) {
  if (s.active < 1 || s.active > s.experts) {
    throw ConfigError("{} active of {} experts: a token visits an expert once; nearest: {}",
                      s.active, s.experts, std::clamp<int64_t>(s.active, 1, s.experts));
  }
}

Routing routing_of(Exec& exec, const RoutingShape& shape, const Tensor& index) {
  Routing routing;
  routing.index = index;
  routing.weight = exec.empty({shape.tokens, shape.active});
  kernels::fill(exec, routing.weight, 1.0f / static_cast<float>(shape.active));
  routing.order = kernels::order_by_expert(exec, index, shape.experts);
  return routing;
}

// rank[e]: a random order of the experts.
std::vector<int64_t> shuffled_ranks(int64_t experts) {
  const RandomStream stream(kSeed, "bench router ranks");
  std::vector<int64_t> order(static_cast<size_t>(experts)), rank(order.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return stream.uniform(static_cast<uint64_t>(a)) < stream.uniform(static_cast<uint64_t>(b));
  });
  for (size_t i = 0; i < order.size(); ++i) {
    rank[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return rank;
}

}  // namespace

Routing balanced_routing(Exec& exec, const RoutingShape& shape) {
  check(shape);
  const Tensor index = exec.empty({shape.tokens, shape.active}, DType::kI32);
  for (int64_t i = 0; i < shape.tokens * shape.active; ++i) {
    host<int32_t>(index)[i] = static_cast<int32_t>(i % shape.experts);
  }
  return routing_of(exec, shape, index);
}

Routing skewed_routing(Exec& exec, const RoutingShape& shape, double skew) {
  check(shape);
  const RandomStream noise(kSeed, "bench router noise");
  const std::vector<int64_t> rank = shuffled_ranks(shape.experts);
  const Tensor index = exec.empty({shape.tokens, shape.active}, DType::kI32);
  std::vector<std::pair<double, int32_t>> logits(static_cast<size_t>(shape.experts));
  for (int64_t n = 0; n < shape.tokens; ++n) {
    for (int64_t e = 0; e < shape.experts; ++e) {
      const double u = noise.uniform(static_cast<uint64_t>(n * shape.experts + e));
      const double gumbel = -std::log(-std::log(std::clamp(u, 1e-12, 1.0 - 1e-12)));
      const auto place = static_cast<size_t>(e);
      const double popular = -skew * std::log(1.0 + static_cast<double>(rank[place]));
      logits[place] = {popular + gumbel, static_cast<int32_t>(e)};
    }
    std::partial_sort(logits.begin(), logits.begin() + shape.active, logits.end(),
                      std::greater<>());
    for (int64_t k = 0; k < shape.active; ++k) {
      host<int32_t>(index)[n * shape.active + k] = logits[static_cast<size_t>(k)].second;
    }
  }
  return routing_of(exec, shape, index);
}

double max_over_mean(const Routing& routing) {
  const auto& offsets = routing.order.offsets;
  int64_t most = 0;
  for (size_t e = 0; e + 1 < offsets.size(); ++e) {
    most = std::max(most, offsets[e + 1] - offsets[e]);
  }
  return static_cast<double>(most) * static_cast<double>(offsets.size() - 1) /
         static_cast<double>(std::max<int64_t>(1, offsets.back()));
}

}  // namespace weft
