#include "core/files/parquet/thrift.h"

#include "core/base/error.h"

namespace weft {

void ThriftReader::refuse(const std::string& what) const {
  throw ConfigError("{}: damaged at byte {}: {}", file_, offset_ + static_cast<int64_t>(at_), what);
}

ThriftReader::Type ThriftReader::type_of(int code) const {
  if (code > static_cast<int>(Type::kStruct)) refuse("a type that Thrift does not have");
  return static_cast<Type>(code);
}

void ThriftReader::expect(Type type, Type wanted, const char* what) const {
  if (type != wanted) refuse(fmt::format("{} is expected", what));
}

std::byte ThriftReader::byte() {
  if (at_ == bytes_.size()) refuse("it ends inside a struct");
  return bytes_[at_++];
}

void ThriftReader::advance(size_t bytes) {
  if (bytes > bytes_.size() - at_) refuse("it ends inside a value");
  at_ += bytes;
}

uint64_t ThriftReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto next = static_cast<uint64_t>(byte());
    value |= (next & 0x7F) << shift;
    if (next < 0x80) return value;
  }
  refuse("a number of more than 64 bits");
}

int64_t ThriftReader::zigzag() {
  const uint64_t value = varint();
  return static_cast<int64_t>(value >> 1 ^ (~(value & 1) + 1));
}

int64_t ThriftReader::length() {
  const uint64_t value = varint();
  if (value > bytes_.size() - at_) refuse(fmt::format("{} bytes or elements are not there", value));
  return static_cast<int64_t>(value);
}

int64_t ThriftReader::whole(Type type) {
  if (type == Type::kByte) return static_cast<int8_t>(byte());
  if (type != Type::kI16 && type != Type::kI32 && type != Type::kI64)
    refuse("a whole number is expected");
  return zigzag();
}

int64_t ThriftReader::whole(Type type, int64_t low, int64_t high, const char* what) {
  const int64_t value = whole(type);
  if (value < low || value > high)
    refuse(fmt::format("{} is {}, outside {} to {}", what, value, low, high));
  return value;
}

bool ThriftReader::flag(Type type) {
  if (type != Type::kTrue && type != Type::kFalse) refuse("true or false is expected");
  return type == Type::kTrue;
}

std::string_view ThriftReader::text(Type type) {
  expect(type, Type::kBinary, "a text");
  const auto size = static_cast<size_t>(length());
  const auto* begin = reinterpret_cast<const char*>(bytes_.data() + at_);
  at_ += size;
  return {begin, size};
}

ThriftReader::ListHead ThriftReader::list_head() {
  const auto head = static_cast<uint8_t>(byte());
  const Type element = type_of(head & 15);
  int64_t count = head >> 4;
  if (count == 15) count = length();
  return {element, count};
}

void ThriftReader::skip(Type type) {
  const Nested nested(*this);
  // Inside lists a flag has a byte of its own, and is skipped as one.
  const auto element = [&](Type t) {
    t == Type::kTrue || t == Type::kFalse ? advance(1) : skip(t);
  };
  switch (type) {
    case Type::kStop: refuse("an element without a type");
    case Type::kTrue:
    case Type::kFalse: return;
    case Type::kByte: return advance(1);
    case Type::kI16:
    case Type::kI32:
    case Type::kI64: varint(); return;
    case Type::kDouble: return advance(8);
    case Type::kBinary: return advance(static_cast<size_t>(length()));
    case Type::kStruct: return structure([](int, Type) { return false; });
    case Type::kList:
    case Type::kSet: {
      const auto [of, count] = list_head();
      for (int64_t i = 0; i < count; ++i) element(of);
      return;
    }
    case Type::kMap: {
      const int64_t count = length();
      if (count == 0) return;
      const auto types = static_cast<uint8_t>(byte());
      const Type key = type_of(types >> 4), value = type_of(types & 15);
      for (int64_t i = 0; i < count; ++i) {
        element(key);
        element(value);
      }
      return;
    }
  }
}

}  // namespace weft
