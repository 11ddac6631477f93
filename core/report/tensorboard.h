#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files/record_file.h"

// TensorBoard event files: TFRecord framing around a few protobuf fields, written by hand.
namespace weft {

uint32_t crc32c(std::string_view bytes);         // Castagnoli
uint32_t masked_crc32c(std::string_view bytes);  // as records store it

// length u64, masked crc of those 8 bytes u32, bytes, masked crc of the bytes u32; little-endian.
std::string tfrecord(std::string_view bytes);

// One scalar summary event. TensorBoard plots one curve per tag.
std::string scalar_event(double wall_time, int64_t step,
                         const std::vector<std::pair<std::string, double>>& tags);

// A histogram with bars at 0, 1, ...: `counts[i]` is the bar from i to i + 1.
std::string histogram_event(double wall_time, int64_t step, std::string_view tag,
                            const std::vector<int64_t>& counts);

class EventWriter {
 public:
  // A new file in `dir` (created if missing). TensorBoard then ignores events of earlier files from
  // `first_step` on, which a resumed run writes again.
  EventWriter(const std::string& dir, int64_t first_step);

  // Returns false if the file could not be written (RecordFile::append).
  bool scalars(int64_t step, const std::vector<std::pair<std::string, double>>& tags);
  bool histogram(int64_t step, std::string_view tag, const std::vector<int64_t>& counts);
  const RecordFile& file() const { return *file_; }

 private:
  bool put(std::string_view event) { return file_->append(tfrecord(event)); }

  std::optional<RecordFile> file_;
};

}  // namespace weft
