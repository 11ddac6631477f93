#pragma once

#include <optional>

#include "kernels/gates/activation.h"
#include "layers/memory/inner_rule.h"

namespace weft {

// A gate of every memory: f of a projection of x, f32, one row per (token, memory).
class MemoryGate {
 public:
  enum class Map : uint8_t {
    kPlain,
    kSigmoid,     // factor * sigmoid(z)
    kLogSigmoid,  // logsigmoid(z) / factor
    kMinusExp,    // -e^z
    kDecay,       // -e^{A_log} softplus(z + dt_bias); the memories share A_log and dt_bias
    kCapped,      // factor * tanh(z / factor)
  };
  struct Options {
    std::string name;   // of the projection: name_proj, shared_name
    int64_t width = 1;  // numbers per head
    Map map = Map::kPlain;
    float factor = 1.0f;
    int64_t rank = 0;  // not 0: two projections, name.0 and name.1, of that rank in between
    kernels::Activation between = kernels::Activation::kIdentity;  // of the two
    bool bias = false;
    Init bias_init = Init::zeros();
    Init init = Init::normal(kInitDeviation);  // of the projection; of a pair see `pair`
    std::optional<std::pair<Init, Init>> pair = {};
    double slowest = 0.0;  // kDecay: e^{A_log} starts between this and 16
  };
  MemoryGate(const InnerBuild& inner, const Options& options);

  struct Saved {
    Tensor low;    // [computed rows, rank], before the activation
    Tensor raw;    // [computed rows, heads * width] f32: z
    Tensor value;  // [rows, heads * width] f32
  };
  Saved forward(Exec& exec, const InnerInputs& in) const;
  // Adds into the weights' gradients and to dx f32 [computed rows, hidden].
  void backward(Exec& exec, const InnerInputs& in, const Saved& saved, const Tensor& d_value,
                View dx) const;

  double flops_per_row() const {
    return up_.flops_per_row() + (down_ ? down_->flops_per_row() : 0.0);
  }

 private:
  void open(Exec& exec, const Tensor& raw, const Tensor& value) const;
  Tensor active(Exec& exec, const Tensor& low) const;
  // dz in the compute type.
  Tensor close(Exec& exec, const Tensor& raw, const Tensor& d_value) const;

  Options options_;
  MemorySpace space_;
  DType compute_;
  std::optional<MemoryLinear> down_;
  MemoryLinear up_;
  Parameter* a_log_ = nullptr;    // [heads]
  Parameter* dt_bias_ = nullptr;  // [heads * width]
};

}  // namespace weft
