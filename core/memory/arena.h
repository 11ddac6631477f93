#pragma once

#include "core/memory/tensor.h"

namespace weft {

// A zeroed block that lives for the whole run: parameters, gradients, moments.
class Arena {
 public:
  Arena() = default;
  Arena(Ledger& ledger, Label label, int64_t bytes, Backing& backing = host_backing());
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  // Part of the block, `offset` bytes from its start. The arena must outlive it.
  Tensor tensor(int64_t offset, Shape shape, DType dtype) const;
  int64_t bytes() const { return bytes_; }

 private:
  Ledger* ledger_ = nullptr;
  Backing* backing_ = nullptr;
  Label label_ = Label::kParameters;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace weft
