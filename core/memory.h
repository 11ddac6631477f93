#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

namespace weft {

// What bytes are for. Every byte a training step touches belongs to exactly one label, so that the
// memory plan, the step line and the measured peak speak of the same things.
enum class Label : uint8_t {
  kParameters,   // weights in compute precision
  kMaster,       // f32 master weights, where the compute precision is lower
  kGradients,    // f32
  kMoments,      // Adam's m and v
  kPacked,       // weights rearranged for the matrix kernels
  kActivations,  // kept from forward to backward, and what flows between layers
  kScratch,      // inside one kernel call
  kData,         // batches
  kCount,
};
std::string_view name_of(Label label);

// Live and peak bytes by label. Thread-safe.
class Ledger {
 public:
  struct Entry {
    int64_t live = 0, peak = 0;
  };

  void add(Label label, int64_t bytes);  // negative when freed
  Entry of(Label label) const;
  Entry total() const;
  void restart_peaks();  // peaks start again from what is live

 private:
  mutable std::mutex mutex_;
  std::array<Entry, static_cast<size_t>(Label::kCount)> entries_{};
  Entry total_;
};

// Memory that is handed out and taken back all the time: best fit over memory that grows at its end,
// neighbours merged when freed, so that a step runs in the memory of the step before and page faults
// stop after the first one. Blocks are aligned to 64 bytes. Thread-safe. Must outlive what it handed out.
class Pool {
 public:
  explicit Pool(Ledger& ledger);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::shared_ptr<void> allocate(int64_t bytes, Label label);
  int64_t reserved() const;  // bytes taken from the system
  Ledger& ledger() { return ledger_; }

 private:
  struct Impl;
  Ledger& ledger_;
  std::unique_ptr<Impl> impl_;
};

// One block for the whole run: parameters, gradients, moments. Zeroed.
class Arena {
 public:
  Arena() = default;
  Arena(Ledger& ledger, Label label, int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Ledger* ledger_ = nullptr;
  Label label_ = Label::kParameters;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace weft
