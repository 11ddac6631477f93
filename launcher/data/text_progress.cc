#include "launcher/data/text_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace weft {
namespace {

bool terminal() { return isatty(STDERR_FILENO) != 0; }

}  // namespace

TextProgress::TextProgress(std::optional<std::chrono::milliseconds> every)
    : every_(every.value_or(std::chrono::milliseconds(terminal() ? 100 : 5000))) {}

TextProgress::~TextProgress() {
  if (shown_ && terminal()) fmt::print(stderr, "\r\033[K");
}

void TextProgress::show(const std::string& what, int64_t bytes) {
  const auto now = Clock::now();
  if (now - last_ < every_) return;
  last_ = now;
  shown_ = true;
  const double mb = static_cast<double>(bytes) / 1e6;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  fmt::print(stderr, "{}{}  {:.1f} MB  {:.1f} MB/s{}", terminal() ? "\r\033[K" : "", what, mb,
             mb / std::max(1e-9, seconds), terminal() ? "" : "\n");
  std::fflush(stderr);
}

}  // namespace weft
