#pragma once

#include <array>
#include <optional>

#include "layers/basic/short_convs.h"
#include "layers/mixers/linear_gates.h"

namespace weft {

// The short convolutions, with silu, that a linear mixer may have between its projections and all
// else: one each on q, k and v, with weights q_conv1d, k_conv1d and v_conv1d. Rows are
// [tokens, q | k | v], where more columns may follow. Without any, the projected rows are read.
class LinearConvs {
 public:
  struct Channels {
    HeadGroup heads;
    int64_t width = 0;  // per head
  };
  LinearConvs() = default;  // none
  LinearConvs(const Build& build, const std::array<Channels, 3>& qkv);

  // One forward pass. Keys and values, which summaries of spans need, start in the constructor;
  // queries follow while states are exchanged.
  class Pass {
   public:
    Pass(const LinearConvs& convs, Exec& exec, const Tensor& projected,
         const MixerContext& context);
    const Tensor& rows() const { return y_; }  // [tokens, q | k | v] as it gets done
    void finish_keys_and_values(Exec& exec, SavedStack& saved);
    void start_queries(Exec& exec);  // when they have been projected
    void finish_queries(Exec& exec, SavedStack& saved);

   private:
    ConvsForward::Part part(size_t which) const;

    const LinearConvs& convs_;
    const MixerContext& context_;
    Tensor projected_, y_;
    std::optional<ConvsForward> keys_and_values_, queries_;
  };

  // For gradients of the convolved rows: dx itself without convolutions.
  Tensor output_gradient(Exec& exec, const Tensor& dx) const;
  // From dy to the first columns of dx, pending until it is finished. None without convolutions.
  std::optional<ConvsBackward> backward(Exec& exec, const Tensor& projected, const Tensor& dy,
                                        const Tensor& dx, const MixerContext& context,
                                        SavedStack& saved) const;

  bool enabled() const { return !convs_.empty(); }
  int64_t width() const { return begin_[3]; }
  double flops_per_token() const { return 2.0 * ShortConv::kTaps * static_cast<double>(width()); }

 private:
  View part(const Tensor& rows, size_t which) const {
    return rows.view().columns(begin_[which], begin_[which + 1] - begin_[which]);
  }
  std::array<int64_t, 4> begin_ = {};  // of q, k, v, and the end
  std::vector<ShortConv> convs_;       // three or none
};

inline constexpr const char* kShortConvHelp =
    "convolve q, k and v over the last four tokens, then silu";

}  // namespace weft
