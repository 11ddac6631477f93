#include "core/report/tensorboard.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

namespace weft {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? 0x82f63b78u : 0u);
    table[i] = c;
  }
  return table;
}

// Little-endian on every machine.
template <class T>
void append_bytes(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// Protobuf wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
void append_key(std::string& out, int field, int wire) {
  append_varint(out, static_cast<uint64_t>(field << 3 | wire));
}
void append_bits(std::string& out, double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  append_bytes(out, bits);
}
void append_double(std::string& out, int field, double value) {
  append_key(out, field, 1);
  append_bits(out, value);
}
void append_float(std::string& out, int field, float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  append_key(out, field, 5);
  append_bytes(out, bits);
}
void append_integer(std::string& out, int field, int64_t value) {
  append_key(out, field, 0);
  append_varint(out, static_cast<uint64_t>(value));
}
void append_string(std::string& out, int field, std::string_view value) {
  append_key(out, field, 2);
  append_varint(out, value.size());
  out += value;
}

// tensorflow.Event: wall_time 1, step 2, file_version 3, summary 5, session_log 7.
std::string event_head(double wall_time, int64_t step) {
  std::string event;
  append_double(event, 1, wall_time);
  append_integer(event, 2, step);
  return event;
}

double now() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string tfrecord(std::string_view bytes) {
  std::string out;
  append_bytes(out, static_cast<uint64_t>(bytes.size()));
  append_bytes(out, masked_crc32c(out));
  out += bytes;
  append_bytes(out, masked_crc32c(bytes));
  return out;
}

std::string scalar_event(double wall_time, int64_t step,
                         const std::vector<std::pair<std::string, double>>& tags) {
  std::string summary;
  for (const auto& [tag, value] : tags) {
    std::string entry;  // Summary.Value: tag 1, simple_value 2
    append_string(entry, 1, tag);
    append_float(entry, 2, static_cast<float>(value));
    append_string(summary, 1, entry);
  }
  std::string event = event_head(wall_time, step);
  append_string(event, 5, summary);
  return event;
}

// HistogramProto: min 1, max 2, num 3, sum 4, sum_squares 5, bucket_limit 6 and bucket 7, packed.
std::string histogram_event(double wall_time, int64_t step, std::string_view tag,
                            const std::vector<int64_t>& counts) {
  double number = 0, sum = 0, squares = 0;
  std::string limits, buckets;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto count = static_cast<double>(counts[i]), middle = static_cast<double>(i) + 0.5;
    number += count;
    sum += count * middle;
    squares += count * middle * middle;
    append_bits(limits, static_cast<double>(i) + 1);
    append_bits(buckets, count);
  }
  std::string histogram;
  append_double(histogram, 1, 0);
  append_double(histogram, 2, static_cast<double>(counts.size()));
  append_double(histogram, 3, number);
  append_double(histogram, 4, sum);
  append_double(histogram, 5, squares);
  append_string(histogram, 6, limits);
  append_string(histogram, 7, buckets);
  std::string entry, summary;  // Summary.Value: tag 1, histo 5
  append_string(entry, 1, tag);
  append_string(entry, 5, histogram);
  append_string(summary, 1, entry);
  std::string event = event_head(wall_time, step);
  append_string(event, 5, summary);
  return event;
}

EventWriter::EventWriter(const std::string& dir, int64_t first_step) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  char host[256] = "host";
  gethostname(host, sizeof host - 1);
  // TensorBoard reads the files of a folder in the order of their names.
  file_.emplace(fmt::format("{}/events.out.tfevents.{:017.6f}.{}", dir, now(), host),
                RecordFile::Content::kNew);
  std::string version = event_head(now(), 0);
  append_string(version, 3, "brain.Event:2");
  put(version);
  std::string start = event_head(now(), first_step), session;
  append_integer(session, 1, 1);  // SessionLog.status = START
  append_string(start, 7, session);
  put(start);
}

bool EventWriter::scalars(int64_t step, const std::vector<std::pair<std::string, double>>& tags) {
  return put(scalar_event(now(), step, tags));
}

bool EventWriter::histogram(int64_t step, std::string_view tag,
                            const std::vector<int64_t>& counts) {
  return put(histogram_event(now(), step, tag, counts));
}

}  // namespace weft
