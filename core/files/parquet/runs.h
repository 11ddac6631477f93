#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Small numbers as Parquet packs them. Both throw RunsError where the bytes do not hold what they
// promise; `data` is not trusted.
struct RunsError {
  const char* what;
};

// Levels and entries of dictionaries: runs of one value, and groups of eight packed bit by bit.
class RunReader {
 public:
  RunReader(std::span<const std::byte> data, int width) : data_(data), width_(width) {}

  uint32_t next() {
    while (left_ == 0) begin_run();
    --left_;
    return packed_ ? bits() : value_;
  }

 private:
  void begin_run();
  uint32_t bits();

  std::span<const std::byte> data_;
  size_t at_ = 0;
  int width_;
  uint64_t left_ = 0;  // of the run
  uint64_t bit_ = 0;   // of the packed run, next
  size_t end_ = 0;     // of the packed run
  bool packed_ = false;
  uint32_t value_ = 0;
};

// DELTA_BINARY_PACKED: the numbers, each within 0 to INT32_MAX, and how many bytes they take.
struct DeltaNumbers {
  std::vector<int32_t> values;
  size_t bytes;
};
DeltaNumbers delta_numbers(std::span<const std::byte> data, int64_t most);

}  // namespace weft
