#include "layers/mixers/linear_convs.h"

namespace weft {
namespace {

constexpr const char* kNames[] = {"q_conv1d", "k_conv1d", "v_conv1d"};
enum { kQ, kK, kV };

}  // namespace

LinearConvs::LinearConvs(const Build& build, const std::array<Channels, 3>& qkv) {
  for (size_t i = 0; i < qkv.size(); ++i) {
    const auto& [heads, width] = qkv[i];
    begin_[i + 1] = begin_[i] + heads.count * width;
    convs_.emplace_back(build, kNames[i],
                        ShortConv::Options{.channels = heads.count * width,
                                           .unit = heads.unit * width,
                                           .replicas = heads.replicas});
  }
}

LinearConvs::Pass::Pass(const LinearConvs& convs, Exec& exec, const Tensor& projected,
                        const MixerContext& context)
    : convs_(convs), context_(context), projected_(projected), y_(projected) {
  if (!convs.enabled()) return;
  y_ = exec.empty({projected.shape()[0], convs.width()}, projected.dtype());
  keys_and_values_.emplace(exec, std::vector{part(kK), part(kV)}, context);
}

ConvsForward::Part LinearConvs::Pass::part(size_t which) const {
  return {&convs_.convs_[which], convs_.part(projected_, which), convs_.part(y_, which)};
}

void LinearConvs::Pass::finish_keys_and_values(Exec& exec, SavedStack& saved) {
  if (keys_and_values_) keys_and_values_->finish(exec, saved);
}

void LinearConvs::Pass::start_queries(Exec& exec) {
  if (convs_.enabled()) queries_.emplace(exec, std::vector{part(kQ)}, context_);
}

void LinearConvs::Pass::finish_queries(Exec& exec, SavedStack& saved) {
  if (queries_) queries_->finish(exec, saved);
}

Tensor LinearConvs::output_gradient(Exec& exec, const Tensor& dx) const {
  return enabled() ? exec.empty({dx.shape()[0], width()}, dx.dtype()) : dx;
}

std::optional<ConvsBackward> LinearConvs::backward(Exec& exec, const Tensor& projected,
                                                   const Tensor& dy, const Tensor& dx,
                                                   const MixerContext& context,
                                                   SavedStack& saved) const {
  if (!enabled()) return std::nullopt;
  std::vector<ConvsBackward::Part> parts;
  for (const size_t which : {kK, kV, kQ}) {  // as forward finished them
    parts.push_back({&convs_[which], part(projected, which), part(dy, which), part(dx, which)});
  }
  return std::make_optional<ConvsBackward>(exec, std::move(parts), context, saved);
}

}  // namespace weft
