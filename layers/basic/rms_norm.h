#pragma once

#include <string>

#include "core/memory/saved.h"
#include "layers/context/build.h"

namespace weft {

// y = x / rms(x) * weight, row by row.   x: [tokens, hidden] f32 (the residual stream), y: compute
// type In the weight's place may stand factor * (offset + weight).
//
// The weight is replicated over the tensor axis. Where rows are split over that axis between
// tensor-parallel regions its gradient is a partial sum, which the spec says once.
class RmsNorm {
 public:
  struct Scale {
    float offset = 0.0f, factor = 1.0f;
  };
  RmsNorm(const Build& build, const std::string& name, const Scale& scale);
  RmsNorm(const Build& build, const std::string& name) : RmsNorm(build, name, Scale()) {}

  Tensor forward(Exec& exec, const Tensor& x, SavedStack& saved) const;
  // Gradient of x, plus `residual`, the gradient that flows past the norm. Adds into the weight's.
  Tensor backward(Exec& exec, const Tensor& dy, const Tensor& residual, SavedStack& saved) const;
  DType result_type() const { return compute_; }

 private:
  struct Saved {
    Tensor x;        // shared with the producer, not copied
    Tensor inv_rms;  // [tokens] f32
  };
  Tensor scale(Exec& exec) const;  // the factors of x / rms(x)

  Parameter& weight_;
  float epsilon_;
  Scale scale_;
  DType compute_;
};

}  // namespace weft
