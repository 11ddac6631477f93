#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace weft {

// Working space of threads that encode; what one gives back is kept for the next one.
template <class Scratch>
class ScratchPool {
 public:
  class Borrowed {
   public:
    explicit Borrowed(ScratchPool& from) : from_(from) {
      const std::lock_guard lock(from.mutex_);
      if (from.idle_.empty()) {
        mine_ = std::make_unique<Scratch>();
      } else {
        mine_ = std::move(from.idle_.back());
        from.idle_.pop_back();
      }
    }
    ~Borrowed() {
      const std::lock_guard lock(from_.mutex_);
      from_.idle_.push_back(std::move(mine_));
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    Scratch* operator->() const { return mine_.get(); }
    Scratch& operator*() const { return *mine_; }

   private:
    ScratchPool& from_;
    std::unique_ptr<Scratch> mine_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace weft
