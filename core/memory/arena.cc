#include "core/memory/arena.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

constexpr int64_t kPage = 4096;

}  // namespace

Arena::Arena(Ledger& ledger, Label label, int64_t bytes, Backing& backing)
    : ledger_(&ledger),
      backing_(&backing),
      label_(label),
      bytes_((std::max<int64_t>(bytes, 1) + kPage - 1) / kPage * kPage) {
  data_ = backing.reserve(bytes_);
  backing.commit(data_, bytes_);
  ledger_->add(label_, bytes_);
}

Arena::~Arena() {
  if (data_ == nullptr) return;
  backing_->release(data_, bytes_);
  ledger_->add(label_, -bytes_);
}

Tensor Arena::tensor(int64_t offset, Shape shape, DType dtype) const {
  WEFT_CHECK(offset >= 0 && offset + shape.elements() * size_of(dtype) <= bytes_,
             "{} {} at byte {} of an arena of {}", name_of(dtype), shape, offset, bytes_);
  return Tensor::borrow(static_cast<char*>(data_) + offset, shape, dtype, backing_->device());
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(backing_, other.backing_);
  std::swap(label_, other.label_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace weft
