#include "layers/mixers/shell_convs.h"

namespace weft {
namespace {

constexpr const char* kNames[] = {"q_conv1d", "k_conv1d", "v_conv1d"};
enum { kQ, kK, kV };

}  // namespace

ShellConvs::ShellConvs(const Build& build, const std::array<Channels, 3>& qkv, Asked asked)
    : begin_{} {
  for (size_t i = 0; i < qkv.size(); ++i) {
    begin_[i + 1] = begin_[i] + qkv[i].count;
    if (asked == Asked::kNo) continue;
    convs_.emplace_back(
        build, kNames[i],
        ShortConv::Options{
            .channels = qkv[i].count, .unit = qkv[i].unit, .replicas = qkv[i].replicas});
  }
}

ShellConvs::ShellConvs(const Build& build, const HeadOptions& h, Asked asked)
    : ShellConvs(build,
                 {{{h.heads * h.dk, h.dk},
                   {h.kv_heads * h.dk, h.dk, h.kv_replicas},
                   {h.kv_heads * h.dv, h.dv, h.kv_replicas}}},
                 asked) {}

ShellConvs::Pass::Pass(const ShellConvs& convs, Exec& exec, const Tensor& projected,
                       const MixerContext& context)
    : convs_(convs), context_(context), projected_(projected), y_(projected) {
  if (!convs.some()) return;
  y_ = exec.empty({projected.shape()[0], convs.width()}, projected.dtype());
  keys_and_values_.emplace(exec, std::vector{part(kK), part(kV)}, context);
}

ConvsForward::Part ShellConvs::Pass::part(size_t which) const {
  return {&convs_.convs_[which], convs_.part(projected_, which), convs_.part(y_, which)};
}

void ShellConvs::Pass::finish_keys_and_values(Exec& exec, SavedStack& saved) {
  if (keys_and_values_) keys_and_values_->finish(exec, saved);
}

void ShellConvs::Pass::start_queries(Exec& exec) {
  if (convs_.some()) queries_.emplace(exec, std::vector{part(kQ)}, context_);
}

void ShellConvs::Pass::finish_queries(Exec& exec, SavedStack& saved) {
  if (queries_) queries_->finish(exec, saved);
}

Tensor ShellConvs::place_for_dy(Exec& exec, const Tensor& dx) const {
  return some() ? exec.empty({dx.shape()[0], width()}, dx.dtype()) : dx;
}

std::optional<ConvsBackward> ShellConvs::backward(Exec& exec, const Tensor& projected,
                                                  const Tensor& dy, const Tensor& dx,
                                                  const MixerContext& context,
                                                  SavedStack& saved) const {
  if (!some()) return std::nullopt;
  std::vector<ConvsBackward::Part> parts;
  for (const size_t which : {kK, kV, kQ}) {  // as forward finished them
    parts.push_back({&convs_[which], part(projected, which), part(dy, which), part(dx, which)});
  }
  return std::make_optional<ConvsBackward>(exec, std::move(parts), context, saved);
}

}  // namespace weft
