#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace weft {

// What this rank is in now. One thread writes, the one that trains; the watchdog's reads at any
// time. Every word is an atomic of its own: a reader may meet the words of two neighbouring
// moments, never half a word. Texts are literals or outlive the rank's communicators.
class Activity {
 public:
  struct Now {
    int64_t step = 0;                // from 1; 0: before the first
    const char* phase = "starting";  // "forward", "backward", "saving"
    int64_t layer = -1;              // -1: not in a layer
    const char* axis = nullptr;      // of the communicator it is in
    const char* call = nullptr;      // "all_reduce"; null: computes
    int64_t calls = 0;               // entered so far, over all axes
    double seconds = 0;              // since it entered or left a call, or moved to another place
  };

  void at(int64_t step, const char* phase) {
    step_.store(step, std::memory_order_relaxed);
    at(phase);
  }
  void at(const char* phase, int64_t layer = -1) {
    phase_.store(phase, std::memory_order_relaxed);
    layer_.store(layer, std::memory_order_relaxed);
    touch(std::chrono::steady_clock::now());
  }

  using Time = std::chrono::steady_clock::time_point;
  void enter(const char* axis, const char* call, Time now) {
    axis_.store(axis, std::memory_order_relaxed);
    call_.store(call, std::memory_order_relaxed);
    calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    touch(now);
  }
  void leave(Time now) {
    call_.store(nullptr, std::memory_order_relaxed);
    touch(now);
  }

  Now now() const;
  int64_t layer() const { return layer_.load(std::memory_order_relaxed); }

 private:
  void touch(Time now) { since_.store(now.time_since_epoch().count(), std::memory_order_release); }

  std::atomic<int64_t> step_{0}, layer_{-1}, calls_{0};
  std::atomic<const char*> phase_{"starting"}, axis_{nullptr}, call_{nullptr};
  std::atomic<Time::rep> since_{std::chrono::steady_clock::now().time_since_epoch().count()};
};

std::string place_text(const Activity::Now& now);  // "step 3, backward of layer 7"

}  // namespace weft
