#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// Progress of reading files, on stderr: one line that renews itself on a terminal, plain lines
// elsewhere.
class TextProgress {
 public:
  // `every`: at least so long between two lines; default: ten a second, or one every five seconds.
  explicit TextProgress(std::optional<std::chrono::milliseconds> every = {});
  ~TextProgress();
  // "WHAT  12.3 MB  4.5 MB/s"; `bytes` since the start.
  void show(const std::string& what, int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  const std::chrono::milliseconds every_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
  bool shown_ = false;
};

}  // namespace weft
