#include "core/files/parquet/runs.h"

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

uint64_t varint(std::span<const std::byte> data, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at == data.size()) throw RunsError{"it ends inside a number"};
    const auto next = static_cast<uint64_t>(data[at++]);
    value |= (next & 0x7F) << shift;
    if (next < 0x80) return value;
  }
  throw RunsError{"a number of more than 64 bits"};
}

int64_t zigzag(std::span<const std::byte> data, size_t& at) {
  const uint64_t value = varint(data, at);
  return static_cast<int64_t>(value >> 1 ^ (~(value & 1) + 1));
}

// `width` bits (at most 64) from bit `bit` on, the lowest first; bytes behind the end are zero.
uint64_t bits_at(std::span<const std::byte> data, uint64_t bit, int width) {
  uint64_t value = 0;
  for (int have = 0; have < width;) {
    const uint64_t from = bit + static_cast<uint64_t>(have);
    const auto byte = from / 8 < data.size() ? static_cast<uint64_t>(data[from / 8]) : 0;
    const int skip = static_cast<int>(from % 8), take = std::min(8 - skip, width - have);
    value |= (byte >> skip & ((uint64_t{1} << take) - 1)) << have;
    have += take;
  }
  return value;
}

}  // namespace

void RunReader::begin_run() {
  const uint64_t head = varint(data_, at_);
  packed_ = (head & 1) != 0;
  if (packed_) {
    const uint64_t groups = head >> 1, width = static_cast<uint64_t>(width_);
    // The last group of a page may be cut where its values end.
    const uint64_t rest = data_.size() - at_;
    if (width > 0 && groups > (rest + width - 1) / width) throw RunsError{"a run beyond its end"};
    left_ = 8 * groups;
    bit_ = 8 * at_;
    at_ = std::min(data_.size(), at_ + static_cast<size_t>(groups * width));
    end_ = at_;
    return;
  }
  left_ = head >> 1;
  const size_t bytes = (static_cast<size_t>(width_) + 7) / 8;
  if (bytes > data_.size() - at_) throw RunsError{"a run beyond its end"};
  value_ = 0;
  std::memcpy(&value_, data_.data() + at_, bytes);
  if (width_ < 32 && value_ >> width_ != 0) throw RunsError{"a value of too many bits"};
  at_ += bytes;
}

uint32_t RunReader::bits() {
  const uint64_t from = bit_;
  bit_ += static_cast<uint64_t>(width_);
  if (bit_ > 8 * end_) throw RunsError{"a run beyond its end"};
  if (from / 8 + 8 <= data_.size()) {
    uint64_t eight;
    std::memcpy(&eight, data_.data() + from / 8, 8);
    return static_cast<uint32_t>(eight >> from % 8 & ((uint64_t{1} << width_) - 1));
  }
  return static_cast<uint32_t>(bits_at(data_, from, width_));
}

DeltaNumbers delta_numbers(std::span<const std::byte> data, int64_t most) {
  size_t at = 0;
  const uint64_t block = varint(data, at), parts = varint(data, at), count = varint(data, at);
  int64_t value = zigzag(data, at);
  if (block == 0 || block % 128 != 0 || block > (1 << 20) || parts == 0 || block % parts != 0 ||
      block / parts % 32 != 0)
    throw RunsError{"blocks of a size that is not allowed"};
  if (count > static_cast<uint64_t>(most)) throw RunsError{"more numbers than values"};
  DeltaNumbers out{{}, 0};
  const auto add = [&] {
    if (value < 0 || value > INT32_MAX) throw RunsError{"a length that is none"};
    out.values.push_back(static_cast<int32_t>(value));
  };
  if (count > 0) add();
  const uint64_t in_part = block / parts;
  while (out.values.size() < count) {
    const int64_t least = zigzag(data, at);
    if (parts > data.size() - at) throw RunsError{"it ends inside a block"};
    const size_t widths = at;
    at += static_cast<size_t>(parts);
    for (uint64_t p = 0; p < parts && out.values.size() < count; ++p) {
      const int width = static_cast<int>(data[widths + static_cast<size_t>(p)]);
      const size_t bytes = static_cast<size_t>(in_part) * static_cast<size_t>(width) / 8;
      if (width > 64 || bytes > data.size() - at) throw RunsError{"it ends inside a block"};
      for (uint64_t i = 0; i < in_part && out.values.size() < count; ++i) {
        const uint64_t delta = bits_at(data, 8 * at + i * static_cast<uint64_t>(width), width);
        value = static_cast<int64_t>(static_cast<uint64_t>(value) + static_cast<uint64_t>(least) +
                                     delta);
        add();
      }
      at += bytes;
    }
  }
  out.bytes = at;
  return out;
}

}  // namespace weft
