#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>

#include "tests/support/vgpu/wire/board.h"
#include "tests/support/vgpu/wire/command.h"

namespace vgpu {

// Commands that wait in their streams, and which of them runs next. A seed draws the order among
// streams and holds some commands back for a while, so that a missing event shows.
class Queues {
 public:
  using Clock = std::chrono::steady_clock;

  // Seed 0: in the order of arrival, without delays.
  Queues(const Board& board, uint32_t seed, int64_t longest_delay_us);

  void add(Command command);
  // A stream whose first command may begin; `busy`: exchanges between devices must wait.
  std::optional<uint32_t> next(bool exchange_is_busy);
  Command take(uint32_t stream);
  void finished(uint32_t stream);  // its next command may begin
  void drop_all() { queues_.clear(); }

  // Time until a command may become ready without a message; -1: never.
  int64_t idle_microseconds() const;

 private:
  struct Queue {
    std::deque<Command> commands;
    std::deque<uint64_t> arrivals;
    bool running = false, looked_at = false;
    Clock::time_point not_before;
  };
  bool ready(Queue& queue, bool exchange_is_busy);
  bool waits_are_over(const Command& command) const;
  int64_t random(int64_t below) {
    return std::uniform_int_distribution<int64_t>(0, below - 1)(rng_);
  }

  const Board& board_;
  bool shuffled_;
  int64_t longest_delay_us_;
  std::mt19937 rng_;
  uint64_t arrivals_ = 0;
  std::map<uint32_t, Queue> queues_;
};

}  // namespace vgpu
