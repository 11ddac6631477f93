#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "core/parameter.h"
#include "kernels/gates/ffn_activation.h"

namespace weft {

// Epsilon of the norms over heads, in the models that leave it unsaid.
inline constexpr float kHeadNormEpsilon = 1e-5f;

class Communicator;

// How the products of experts are computed; the numbers are the same (layers/moe/expert_compute.h).
enum class ExpertMode : uint8_t { kGrouped, kLoop, kBlockSparse };

// Everything that a layer needs to declare its weights.
struct Build {
  ParameterStore& store;
  std::string scope;   // "block.3.mixer."
  int64_t hidden = 0;  // width of the residual stream
  int64_t layer = 0;   // this layer's index from the input
  int64_t layers = 1;  // depth of the whole model, over all pipeline stages
  DType compute = DType::kF32;
  float norm_epsilon = 1e-5f;
  kernels::FfnActivation activation = kernels::FfnActivation::kSwiglu;  // of feed-forward layers
  ExpertMode expert_mode = ExpertMode::kGrouped;
  // The ranks that weights are cut over; null: one.
  Communicator* tensor_ranks = nullptr;

  // Mixers count what this rank holds of heads and channels: extents that a tensor split cuts are
  // declared as they are here, the spec that arises is that of the whole weight.
  Parameter& declare(ParameterSpec local) const;
  // The extent of the whole, of which this rank holds `mine` and as much as `replicas` ranks do.
  int64_t whole(int64_t mine, int replicas = 1) const {
    return mine * store.here()[Axis::kTensor].size / replicas;
  }

  Build in(const std::string& name) const {
    Build inner = *this;
    inner.scope += name + ".";
    return inner;
  }
};

// Projections start normal(0, 0.02); those that write into the residual stream are scaled down by
// the number of such writes, so that the stream's variance does not grow with depth.
inline constexpr double kInitDeviation = 0.02;
inline Init output_init(const Build& build) {
  return Init::normal(kInitDeviation / std::sqrt(2.0 * static_cast<double>(build.layers)));
}

}  // namespace weft
