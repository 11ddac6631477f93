#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace weft {

// Purpose of bytes. Every byte that a training step touches has exactly one label, so that the
// memory plan, the step line and the measured peak use the same categories.
enum class Label : uint8_t {
  kParameters,   // weights in compute precision
  kMaster,       // f32 master weights, where the compute precision is lower
  kGradients,    // f32
  kMoments,      // Adam's m and v
  kPacked,       // weights rearranged for the matrix kernels
  kActivations,  // saved for backward, and passed between layers
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
  void restart_peaks();  // sets peaks to the live bytes

 private:
  mutable std::mutex mutex_;
  std::array<Entry, static_cast<size_t>(Label::kCount)> entries_{};
  Entry total_;
};

}  // namespace weft
