#pragma once

#include <memory>
#include <utility>

#include "parallel/comm/communicator.h"

namespace weft {

// Whether communication overlaps computation where it can (parallel.overlap). The bits are the
// same.
enum class Overlap : uint8_t { kOff, kOn };

// A tensor that a pending operation writes, with the memory that the operation reads.
class PendingTensor {
 public:
  explicit PendingTensor(Tensor complete) : to_(std::move(complete)) {}
  PendingTensor(Tensor from, Tensor to, std::unique_ptr<Pending> pending)
      : from_(std::move(from)), to_(std::move(to)), pending_(std::move(pending)) {}

  // All ranks wait in the same order.
  Tensor wait() {
    if (pending_) pending_->wait();
    pending_.reset();
    from_ = {};
    return to_;
  }

 private:
  Tensor from_, to_;
  std::unique_ptr<Pending> pending_;  // given up before the memory goes away
};

}  // namespace weft
