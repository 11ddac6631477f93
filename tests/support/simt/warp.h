#pragma once

#include <cstdint>

#include "tests/support/simt/grid.h"

// Calls of the lanes of a warp together. As CUDA promises it, __syncwarp alone orders memory;
// shuffles and votes move values and nothing else.
namespace simt {

SIMT_UNCHECKED inline void sync_warp(const Place& place, unsigned mask = kAllLanes) {
  WarpCall call{mask, place, [](WarpCall* const*) {}, {}, nullptr, /*orders_memory=*/true};
  warp_call(call);
}

// Which lane a shuffle reads, from its operand.
enum class Lane : uint8_t { kNamed, kXor, kBelow, kAbove };

// Inside its segment of `width` lanes; a lane outside it is one's own, but for kNamed, which wraps.
template <Lane which>
SIMT_UNCHECKED unsigned source_lane(unsigned by, unsigned width) {
  const unsigned lane = lane_index(), first = lane / width * width, within = lane % width;
  switch (which) {
    case Lane::kNamed: return first + by % width;
    case Lane::kXor: return (lane ^ by) / width * width == first ? lane ^ by : lane;
    case Lane::kBelow: return within < by ? lane : lane - by;
    case Lane::kAbove: return within + by >= width ? lane : lane + by;
  }
}

// Every lane gets the value of the lane it names, which must take part.
template <Lane which, class T>
SIMT_UNCHECKED T shuffle(const Place& place, unsigned mask, T value, unsigned by,
                         unsigned width = kWarp) {
  const auto take = [](WarpCall* const* lanes) SIMT_UNCHECKED {
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (lanes[lane] == nullptr) continue;
      const WarpCall* source = lanes[*static_cast<const unsigned*>(lanes[lane]->in[1]) % kWarp];
      if (source == nullptr) throw Error("a shuffle reads a lane that does not take part in it");
      *static_cast<T*>(lanes[lane]->out) = *static_cast<const T*>(source->in[0]);
    }
  };
  T result{};
  const unsigned from = source_lane<which>(by, width);
  WarpCall call{mask, place, take, {&value, &from}, &result};
  warp_call(call);
  return result;
}

SIMT_UNCHECKED inline unsigned ballot(const Place& place, unsigned mask, bool vote) {
  const auto count = [](WarpCall* const* lanes) SIMT_UNCHECKED {
    unsigned votes = 0;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (lanes[lane] == nullptr) continue;
      votes |= unsigned{*static_cast<const bool*>(lanes[lane]->in[0])} << lane;
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (lanes[lane] != nullptr) *static_cast<unsigned*>(lanes[lane]->out) = votes;
    }
  };
  unsigned result = 0;
  WarpCall call{mask, place, count, {&vote}, &result};
  warp_call(call);
  return result;
}

// join(x, y) over the values of all lanes in the mask; Join has no state.
template <class T, class Join>
SIMT_UNCHECKED T reduce(const Place& place, unsigned mask, T value, Join) {
  const auto join_all = [](WarpCall* const* lanes) SIMT_UNCHECKED {
    bool first = true;
    T sum{};
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (lanes[lane] == nullptr) continue;
      const T x = *static_cast<const T*>(lanes[lane]->in[0]);
      sum = first ? x : Join{}(sum, x);
      first = false;
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (lanes[lane] != nullptr) *static_cast<T*>(lanes[lane]->out) = sum;
    }
  };
  T result{};
  WarpCall call{mask, place, join_all, {&value}, &result};
  warp_call(call);
  return result;
}

}  // namespace simt
