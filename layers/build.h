#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "core/parameter.h"
#include "kernels/ffn_activation.h"

namespace weft {

// How the products of experts are computed; the numbers are the same (layers/moe/expert_compute.h).
enum class ExpertMode : uint8_t { kGrouped, kLoop, kBlockSparse };

// What a layer needs to declare its weights.
struct Build {
  ParameterStore& store;
  std::string scope;       // "block.3.mixer."
  int64_t hidden = 0;      // width of the residual stream
  int64_t layer = 0;       // this layer's index from the input
  int64_t layers = 1;      // depth of the whole model, over all pipeline stages
  DType compute = DType::kF32;
  float norm_epsilon = 1e-5f;
  kernels::FfnActivation activation = kernels::FfnActivation::kSwiglu;  // of feed-forward layers
  ExpertMode expert_mode = ExpertMode::kGrouped;

  Build in(const std::string& name) const {
    Build inner = *this;
    inner.scope += name + ".";
    return inner;
  }
};

// Projections start normal(0, 0.02); those that write into the residual stream are scaled down by the
// number of such writes, so that the stream's variance does not grow with depth.
inline constexpr double kInitDeviation = 0.02;
inline Init output_init(const Build& build) {
  return Init::normal(kInitDeviation / std::sqrt(2.0 * static_cast<double>(build.layers)));
}

}  // namespace weft
