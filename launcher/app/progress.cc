#include "launcher/app/progress.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/report/console.h"

namespace weft {
namespace {

// As many decimals as fit into `width` characters: columns keep their positions as numbers shrink.
std::string fitted(double x, int width) {
  if (!std::isfinite(x)) return fmt::format("{:>{}}", x, width);
  for (int decimals = width - 2; decimals > 0; --decimals) {
    std::string text = fmt::format("{:.{}f}", x, decimals);
    if (static_cast<int>(text.size()) <= width) return text;
  }
  std::string text = fmt::format("{:>{}.0f}", x, width);
  return static_cast<int>(text.size()) <= width ? text : fmt::format("{:.0e}", x);
}

// Three digits and a unit. Switches to the next unit if rounding would need a fourth digit.
std::string scaled(double x, double base, const char* const* units, int last_unit) {
  int unit = 0;
  while (unit < last_unit && x >= 999.5) {
    x /= base;
    ++unit;
  }
  const int decimals = unit == 0 || x >= 99.95 ? 0 : (x >= 9.995 || base == 1024.0 ? 1 : 2);
  return fmt::format("{:.{}f}{}", x, decimals, units[unit]);
}

std::string step_time(double ms) {  // six characters
  if (!std::isfinite(ms)) return fmt::format("{:>3} ms", ms);
  if (ms < 9.95) return fmt::format("{:.1f} ms", ms);
  if (ms < 999.5) return fmt::format("{:>3.0f} ms", ms);
  return fitted(ms / 1000.0, 4) + " s";
}

std::string percent(double share) { return fmt::format("{:>2.0f}%", 100.0 * share); }

int terminal_columns(std::FILE* out) {
  winsize size{};
  return ioctl(console::file_of(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Drops columns (separated by two spaces) before the last one until the text fits.
std::string narrowed(const std::string& text, size_t room) {
  if (text.size() <= room) return text;
  const size_t last = text.rfind("  ");
  if (last == std::string::npos || text.size() - last > room) return text.substr(0, room);
  const size_t left = room - (text.size() - last);
  return text.substr(0, std::min(text.rfind("  ", left), left)) + text.substr(last);
}

}  // namespace

std::string format_count(double count) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
  if (!std::isfinite(count)) return fmt::format("{}", count);
  return scaled(count, 1000.0, kUnits, 6);
}

std::string format_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "K", "M", "G", "T", "P", "E"};
  return scaled(static_cast<double>(bytes), 1024.0, kUnits, 6);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  const auto s = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string step_line(const StepReport& r) {
  const std::string total = fmt::format("{}", r.steps);
  std::string out = fmt::format("step {:>{}}/{}", r.step, std::max<size_t>(5, total.size()), total);
  out += "  loss " + fitted(r.loss, 6);
  if (r.aux_loss) out += "  aux " + fitted(*r.aux_loss, 6);
  out += "  |g| " + fitted(r.grad_norm, 4);
  out += fmt::format("  lr {:.1e}  {}  {:>5} tok/s", r.lr, step_time(r.step_ms),
                     format_count(r.tokens_per_s));
  if (r.mfu) out += "  mfu " + percent(*r.mfu);
  if (r.comm) out += "  comm " + percent(*r.comm);
  if (r.expert_load) out += "  experts " + fitted(*r.expert_load, 4) + "x";
  out += fmt::format("  mem {:>4}", format_bytes(r.memory));
  out += r.skipped ? "  skipped" : "  eta " + format_duration(r.eta_seconds);
  return out;
}

Progress::Progress(std::FILE* out)
    : Progress(out, console::is_terminal(out), terminal_columns(out)) {}

Progress::Progress(std::FILE* out, bool terminal, int columns)
    : out_(out), terminal_(terminal), columns_(columns) {}

Progress::~Progress() { clear(); }

void Progress::line(const std::string& text) {
  clear();
  fmt::print(out_, "{}\n", text);
  std::fflush(out_);
}

void Progress::live(const std::string& text) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (shown_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  // One column stays free: some terminals wrap when the last one is written.
  const size_t room = static_cast<size_t>(std::max(1, columns_ - 1));
  fmt::print(out_, "\r{}\033[K", narrowed(text, room));
  std::fflush(out_);
}

void Progress::clear() {
  if (!shown_) return;
  shown_ = false;
  fmt::print(out_, "\r\033[K");
  std::fflush(out_);
}

}  // namespace weft
