#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace weft {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

struct LogOptions {
  int rank = 0;
  int ranks = 1;          // lines carry the rank when there is more than one
  std::string file = {};  // "run.dir/log.txt", appended to; empty: none. Ranks may share it
  LogLevel level = LogLevel::kInfo;
  bool console = true;  // stderr; ranks other than 0 print only warnings and errors
};

// Log of the run for its users. Each line has time, rank, level and text, and is flushed at
// once.
class Log {
 public:
  explicit Log(const LogOptions& options);
  ~Log();
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;

  void write(LogLevel level, std::string_view text);

  template <class... Args>
  void debug(fmt::format_string<Args...> text, Args&&... args) {
    write(LogLevel::kDebug, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) {
    write(LogLevel::kInfo, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> text, Args&&... args) {
    write(LogLevel::kWarning, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> text, Args&&... args) {
    write(LogLevel::kError, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
