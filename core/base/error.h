#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace weft {

// Something failed while running: a broken invariant, a disk that fails, a damaged file with
// nothing to fall back on. Ends the program with exit code 3.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  template <class... Args>
  requires(sizeof...(Args) > 0) explicit Error(fmt::format_string<Args...> text, Args&&... args)
      : std::runtime_error(fmt::format(text, std::forward<Args>(args)...)) {}
};

// A mistake in config, arguments or data. The message has key, value, place, rule and the nearest
// value that works. Ends the program with exit code 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void throw_check(const char* condition, const char* file, int line,
                              const std::string& message);

}  // namespace weft

// Internal errors: the message states the invariant with its values.
//   WEFT_CHECK(parts > 0, "cannot cut {} rows into {} parts", rows, parts);
#define WEFT_CHECK(condition, ...)                                                          \
  do {                                                                                      \
    if (!(condition)) [[unlikely]]                                                          \
      ::weft::throw_check(#condition, __FILE_NAME__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
