#pragma once

#include <map>
#include <string>
#include <string_view>

#include "parallel/sequence/span_algebra.h"

namespace weft {

// The state that the tokens before a span leave for a mixer, part by part: "recurrence", the last
// inputs of a convolution, a cache of keys. A part that is not there is at the start of its
// documents.
class MixerState {
 public:
  State& part(std::string_view name) {
    const auto found = parts_.find(name);
    return found == parts_.end() ? parts_[std::string(name)] : found->second;
  }
  bool empty() const { return parts_.empty(); }
  const std::map<std::string, State, std::less<>>& parts() const { return parts_; }

 private:
  std::map<std::string, State, std::less<>> parts_;
};

// Optional inputs and outputs as kernels take them: absent where a tensor is undefined or a state
// empty.
inline ConstView given(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }
inline ConstView given(const State& state) {
  return state.empty() ? ConstView{} : ConstView(state[0]);
}
inline View wanted(const Tensor& t) { return t.defined() ? t.view() : View{}; }

// The part of a state that may not be there.
inline State* part_of(MixerState* state, std::string_view name) {
  return state == nullptr ? nullptr : &state->part(name);
}

}  // namespace weft
