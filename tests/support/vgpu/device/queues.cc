#include "tests/support/vgpu/device/queues.h"

#include <algorithm>
#include <vector>

namespace vgpu {

namespace {

// Polling interval for events of other devices, which do not wake this one.
constexpr int64_t kPollMicroseconds = 100;

}  // namespace

Queues::Queues(const Board& board, uint32_t seed, int64_t longest_delay_us)
    : board_(board), shuffled_(seed != 0), longest_delay_us_(longest_delay_us), rng_(seed) {}

void Queues::add(Command command) {
  Queue& queue = queues_[command.header.ticket.stream];
  queue.commands.push_back(std::move(command));
  queue.arrivals.push_back(arrivals_++);
}

bool Queues::waits_are_over(const Command& command) const {
  return std::all_of(command.waits.begin(), command.waits.end(), [&](const Ticket& t) {
    return board_.done[t.stream].load(std::memory_order_acquire) >= t.number;
  });
}

bool Queues::ready(Queue& queue, bool exchange_is_busy) {
  if (queue.running || queue.commands.empty()) return false;
  const Command& first = queue.commands.front();
  if (!waits_are_over(first)) return false;
  if (first.header.op == Op::kExchange && exchange_is_busy) return false;
  if (!shuffled_ || longest_delay_us_ == 0) return true;
  if (!queue.looked_at) {  // one in four is held back
    queue.looked_at = true;
    const int64_t delay = random(4) == 0 ? random(longest_delay_us_) : 0;
    queue.not_before = Clock::now() + std::chrono::microseconds(delay);
  }
  return Clock::now() >= queue.not_before;
}

std::optional<uint32_t> Queues::next(bool exchange_is_busy) {
  std::vector<uint32_t> streams;
  for (auto& [stream, queue] : queues_) {
    if (ready(queue, exchange_is_busy)) streams.push_back(stream);
  }
  if (streams.empty()) return std::nullopt;
  if (shuffled_) return streams[static_cast<size_t>(random(static_cast<int64_t>(streams.size())))];
  return *std::min_element(streams.begin(), streams.end(), [&](uint32_t a, uint32_t b) {
    return queues_[a].arrivals.front() < queues_[b].arrivals.front();
  });
}

Command Queues::take(uint32_t stream) {
  Queue& queue = queues_[stream];
  Command command = std::move(queue.commands.front());
  queue.commands.pop_front();
  queue.arrivals.pop_front();
  queue.running = true;
  queue.looked_at = false;
  return command;
}

void Queues::finished(uint32_t stream) { queues_[stream].running = false; }

int64_t Queues::idle_microseconds() const {
  int64_t idle = -1;
  for (const auto& [stream, queue] : queues_) {
    if (queue.running || queue.commands.empty()) continue;
    int64_t here = kPollMicroseconds;
    if (queue.looked_at && queue.not_before > Clock::now()) {
      const auto left = queue.not_before - Clock::now();
      here = std::chrono::ceil<std::chrono::microseconds>(left).count();
    }
    idle = idle < 0 ? here : std::min(idle, here);
  }
  return idle;
}

}  // namespace vgpu
