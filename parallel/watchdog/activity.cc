#include "parallel/watchdog/activity.h"

#include <fmt/format.h>

namespace weft {

Activity::Now Activity::now() const {
  const Time::rep since = since_.load(std::memory_order_acquire);
  const Time start{Time::duration(since)};
  return {
      .step = step_.load(std::memory_order_relaxed),
      .phase = phase_.load(std::memory_order_relaxed),
      .layer = layer_.load(std::memory_order_relaxed),
      .axis = axis_.load(std::memory_order_relaxed),
      .call = call_.load(std::memory_order_relaxed),
      .calls = calls_.load(std::memory_order_relaxed),
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

std::string place_text(const Activity::Now& now) {
  std::string text = now.step > 0 ? fmt::format("step {}", now.step) : "";
  if (*now.phase != '\0') text += fmt::format("{}{}", text.empty() ? "" : ", ", now.phase);
  if (now.layer >= 0) text += fmt::format(" of layer {}", now.layer);
  return text;
}

}  // namespace weft
