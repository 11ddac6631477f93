#include "tests/support/vgpu/check/history.h"

#include <fmt/format.h>

namespace vgpu {

void History::begin(const CommandInfo& command, std::span<const uint32_t> clock) {
  commands_.push_back(command);
  running_ = static_cast<uint32_t>(commands_.size());
  clock_.assign(clock.begin(), clock.end());
  last_asked_ = 0;
}

bool History::known_before(uint32_t id) const {
  const Ticket& t = command(id).ticket;
  const bool before = t.stream == command(running_).ticket.stream ||
                      (t.stream < clock_.size() && clock_[t.stream] >= t.number);
  if (before) last_asked_ = id;
  return before;
}

std::string History::describe(uint32_t id, const std::vector<std::string>& kernel_names) const {
  if (id == 0) return "nothing";
  const CommandInfo& c = command(id);
  const std::string what = c.what == nullptr
                               ? "kernel " + kernel_names.at(c.kernel_or_bytes)
                               : fmt::format("{} of {} bytes", c.what, c.kernel_or_bytes);
  return fmt::format("{}, stream {} command {}", what, c.ticket.stream, c.ticket.number);
}

}  // namespace vgpu
