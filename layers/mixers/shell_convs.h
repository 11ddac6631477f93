#pragma once

#include <array>

#include "layers/mixers/mixer.h"
#include "layers/short_conv.h"

namespace weft {

// The short convolutions, with silu, that a shell may have between the projections and what its
// recurrence does to them: one each on q, k and v, with weights q_conv1d, k_conv1d and v_conv1d.
// Rows are [tokens, q | k | v], where more columns may follow.
class ShellConvs {
 public:
  ShellConvs(const Build& build, const HeadOptions& heads);

  // [tokens, q | k | v] of the projected rows.
  Tensor forward(Exec& exec, const Tensor& projected, const MixerContext& context,
                 SavedStack& saved) const;
  // From dy [tokens, q | k | v] to the first columns of dx.
  void backward(Exec& exec, const Tensor& projected, const Tensor& dy, const Tensor& dx,
                const MixerContext& context, SavedStack& saved) const;

  int64_t width() const { return begin_[3]; }
  double flops_per_token() const { return 2.0 * ShortConv::kTaps * static_cast<double>(width()); }

 private:
  View part(const Tensor& rows, size_t which) const {
    return rows.view().columns(begin_[which], begin_[which + 1] - begin_[which]);
  }
  std::array<int64_t, 4> begin_;  // of q, k, v, and the end
  std::array<ShortConv, 3> convs_;
};

inline constexpr const char* kShortConvHelp =
    "convolve q, k and v over the last four tokens, then silu";

}  // namespace weft
