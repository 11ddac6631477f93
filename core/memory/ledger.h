#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

}  // namespace weft
