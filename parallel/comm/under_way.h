#pragma once

#include <memory>
#include <utility>

#include "parallel/comm/communicator.h"

namespace weft {

// Whether what can travel while a rank computes does (parallel.overlap). The bits are the same.
enum class Overlap : uint8_t { kOff, kOn };

// A tensor that others' parts are on their way to, with the memory that this rank's leave from.
class TensorUnderWay {
 public:
  explicit TensorUnderWay(Tensor arrived) : to_(std::move(arrived)) {}
  TensorUnderWay(Tensor from, Tensor to, std::unique_ptr<Pending> pending)
      : from_(std::move(from)), to_(std::move(to)), pending_(std::move(pending)) {}

  // Waits for them; all ranks do, in the same order.
  Tensor arrived() {
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
