#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace weft {

// Progress of reading text, on stderr: one line that renews itself on a terminal, a plain line
// every five seconds elsewhere.
class TextProgress {
 public:
  ~TextProgress();
  // "WHAT  12.3 MB  4.5 MB/s"; `bytes` since the start.
  void show(const std::string& what, int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
  bool shown_ = false;
};

}  // namespace weft
