#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/exec.h"

namespace weft {

enum class ReduceOp : uint8_t { kSum, kMax };

// One half of a point-to-point exchange.
struct Transfer {
  enum class Kind : uint8_t { kSend, kRecv } kind;
  int peer;
  View data;
};

// One process group. Element count, type and device come from the views, never from the caller; views
// are contiguous. Calls complete before returning. Sums are formed in rank order, so that a result does
// not depend on timing.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // "sequence[2/4]" in every message and trace line

  virtual void all_reduce(Exec& exec, View inout, ReduceOp op) = 0;
  virtual void all_gather(Exec& exec, ConstView mine, View all) = 0;      // all: [size, mine...]
  virtual void reduce_scatter(Exec& exec, ConstView all, View mine) = 0;  // sums; all: [size, mine...]
  // Rows of `send` go to the ranks in order, send_rows[r] of them to rank r; likewise received.
  virtual void all_to_all_v(Exec& exec, ConstView send, std::span<const int64_t> send_rows, View recv,
                            std::span<const int64_t> recv_rows) = 0;
  virtual void transfer(Exec& exec, std::span<const Transfer> together) = 0;  // none waits for another
  virtual void barrier() = 0;
};

}  // namespace weft
