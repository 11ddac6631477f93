#include "core/files/protobuf.h"

#include <cstring>

#include "core/base/error.h"

namespace weft {

void ProtobufReader::refuse(const std::string& reason) const {
  throw ConfigError("{}: at byte {}: {}", file_, offset_ + at_, reason);
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == bytes_.size()) refuse("the file ends inside a number");
    const auto byte = static_cast<unsigned char>(bytes_[at_++]);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  refuse("a number of more than 64 bits");
}

std::string_view ProtobufReader::take(uint64_t size) {
  if (size > bytes_.size() - at_)
    refuse(fmt::format("a field of {} bytes, where {} are left", size, bytes_.size() - at_));
  const std::string_view taken = bytes_.substr(at_, size);
  text_offset_ = offset_ + at_;
  at_ += size;
  return taken;
}

bool ProtobufReader::next() {
  if (at_ == bytes_.size()) return false;
  const uint64_t key = varint();
  if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) refuse("no protobuf message: a wrong field number");
  field_ = static_cast<int>(key >> 3);
  kind_ = static_cast<Kind>(key & 7);
  switch (kind_) {
    case Kind::kNumber: number_ = varint(); return true;
    case Kind::kText: text_ = take(varint()); return true;
    case Kind::kEight:
    case Kind::kFour:
      text_ = take(kind_ == Kind::kFour ? 4 : 8);
      number_ = 0;
      std::memcpy(&number_, text_.data(), text_.size());
      return true;
  }
  refuse(fmt::format("no protobuf message: a field of type {}", key & 7));
}

void ProtobufReader::expect(Kind kind) const {
  if (kind_ != kind) refuse(fmt::format("field {} has another type here", field_));
}

uint64_t ProtobufReader::number() const {
  expect(Kind::kNumber);
  return number_;
}

float ProtobufReader::real() const {
  expect(Kind::kFour);
  return std::bit_cast<float>(static_cast<uint32_t>(number_));
}

std::string_view ProtobufReader::text() const {
  expect(Kind::kText);
  return text_;
}

}  // namespace weft
