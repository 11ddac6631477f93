#pragma once

#include <array>
#include <optional>

#include "layers/basic/short_convs.h"

namespace weft {

// The short convolutions, with silu, that a shell may have between the projections and what its
// recurrence does to them: one each on q, k and v, with weights q_conv1d, k_conv1d and v_conv1d.
// Rows are [tokens, q | k | v], where more columns may follow. Without any, what was projected is
// what is read.
class ShellConvs {
 public:
  struct Channels {
    int64_t count = 0, unit = 1;  // unit: a head
    int replicas = 1;
  };
  enum class Asked : uint8_t { kNo, kYes };
  ShellConvs(const Build& build, const std::array<Channels, 3>& qkv, Asked asked);
  ShellConvs(const Build& build, const HeadOptions& heads, Asked asked);

  // One forward pass. Keys and values, which summaries of spans need, are under way from the start;
  // queries follow while states travel.
  class Pass {
   public:
    Pass(const ShellConvs& convs, Exec& exec, const Tensor& projected, const MixerContext& context);
    const Tensor& rows() const { return y_; }  // [tokens, q | k | v] as it gets done
    void finish_keys_and_values(Exec& exec, SavedStack& saved);
    void start_queries(Exec& exec);  // when they have been projected
    void finish_queries(Exec& exec, SavedStack& saved);

   private:
    ConvsForward::Part part(size_t which) const;

    const ShellConvs& convs_;
    const MixerContext& context_;
    Tensor projected_, y_;
    std::optional<ConvsForward> keys_and_values_, queries_;
  };

  // Where gradients of the convolved rows are to stand: in dx itself without convolutions.
  Tensor place_for_dy(Exec& exec, const Tensor& dx) const;
  // From dy to the first columns of dx; under way until it is finished. None without convolutions.
  std::optional<ConvsBackward> backward(Exec& exec, const Tensor& projected, const Tensor& dy,
                                        const Tensor& dx, const MixerContext& context,
                                        SavedStack& saved) const;

  bool some() const { return !convs_.empty(); }
  int64_t width() const { return begin_[3]; }
  double flops_per_token() const {
    return some() ? 2.0 * ShortConv::kTaps * static_cast<double>(width()) : 0.0;
  }

 private:
  View part(const Tensor& rows, size_t which) const {
    return rows.view().columns(begin_[which], begin_[which + 1] - begin_[which]);
  }
  std::array<int64_t, 4> begin_;  // of q, k, v, and the end
  std::vector<ShortConv> convs_;  // three or none
};

inline ShellConvs::Asked asked(bool short_conv) {
  return short_conv ? ShellConvs::Asked::kYes : ShellConvs::Asked::kNo;
}

inline constexpr const char* kShortConvHelp =
    "convolve q, k and v over the last four tokens, then silu";

}  // namespace weft
