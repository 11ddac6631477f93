#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory/exec.h"
#include "parallel/comm/host_group.h"

namespace weft {

enum class ReduceOp : uint8_t { kSum, kMax };

// One half of a point-to-point exchange. Between two ranks, messages of one tag arrive in the order
// in which they were sent.
struct Transfer {
  enum class Kind : uint8_t { kSend, kRecv } kind;
  int peer;
  View data;
  int tag = 0;
};

// A collective that all ranks of a group start: its name, and what they must say alike.
struct Collective {
  const char* name;       // "all_gather"
  std::string signature;  // "all_gather(f32 [3, 4])"
};

// The tensors of one process group. Element count, type and device come from the views, never from
// the caller; views are contiguous. An operation `start_x` returns what to wait for, and reads and
// writes its views until then; `x` is the same operation, waited for, by an algorithm that need not
// make progress meanwhile. Sums are formed in rank order, so that a result depends neither on
// timing nor on which of the two was called.
//
// All ranks start their operations in the same order, and wait for them in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // "sequence[2/4]" in every message and trace line

  virtual void all_reduce(Exec& exec, View inout, ReduceOp op) = 0;
  virtual void all_gather(Exec& exec, ConstView mine, View all) = 0;  // all: [size, mine...]
  virtual void reduce_scatter(Exec& exec, ConstView all,
                              View mine) = 0;  // sums; all: [size, mine...]
  // Rows of `send` go to the ranks in order, send_rows[r] of them to rank r; likewise received.
  virtual void all_to_all_v(Exec& exec, ConstView send, std::span<const int64_t> send_rows,
                            View recv, std::span<const int64_t> recv_rows) = 0;
  virtual void transfer(Exec& exec,
                        std::span<const Transfer> together) = 0;  // none waits for another
  // Sends are posted at once, receives at the latest in wait().
  [[nodiscard]] virtual std::unique_ptr<Pending> start(Exec& exec,
                                                       std::span<const Transfer> together) = 0;
  // The hosts of the same ranks, for numbers and texts.
  virtual HostGroup& hosts() = 0;

  // Messages between hosts make these, through start_together, where a backend has nothing better.
  // A rank's own part is copied at once, or summed in wait().
  [[nodiscard]] virtual std::unique_ptr<Pending> start_all_gather(Exec& exec, ConstView mine,
                                                                  View all);
  // `mine` may be this rank's row of `all`.
  [[nodiscard]] virtual std::unique_ptr<Pending> start_reduce_scatter(Exec& exec, ConstView all,
                                                                      View mine);
  [[nodiscard]] virtual std::unique_ptr<Pending> start_all_to_all_v(
      Exec& exec, ConstView send, std::span<const int64_t> send_rows, View recv,
      std::span<const int64_t> recv_rows);

  // A collective of the caller's own: `parts` are this rank's messages of it and get a tag of their
  // own.
  [[nodiscard]] virtual std::unique_ptr<Pending> start_together(Exec& exec, const Collective& what,
                                                                std::vector<Transfer> parts);

 private:
  int started_ = 0;  // together
};

}  // namespace weft
