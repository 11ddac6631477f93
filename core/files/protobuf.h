#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// The fields of a protobuf message, one after the other. The bytes are not trusted: what ends too
// early or has an unknown encoding is refused with a ConfigError that names `file` and the byte.
class ProtobufReader {
 public:
  ProtobufReader(std::string_view bytes, std::string file, size_t offset = 0)
      : bytes_(bytes), file_(std::move(file)), offset_(offset) {}

  bool next();  // moves to the next field; false at the end

  int field() const { return field_; }
  // The value of the field; refused when it is encoded as another kind.
  uint64_t number() const;
  bool flag() const { return number() != 0; }
  float real() const;
  std::string_view text() const;
  ProtobufReader message() const { return {text(), file_, text_offset_}; }

  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  enum class Kind : uint8_t { kNumber = 0, kEight = 1, kText = 2, kFour = 5 };
  uint64_t varint();
  std::string_view take(uint64_t size);
  void expect(Kind kind) const;

  std::string_view bytes_;
  std::string file_;
  size_t offset_, at_ = 0, text_offset_ = 0;
  int field_ = 0;
  Kind kind_ = Kind::kNumber;
  uint64_t number_ = 0;
  std::string_view text_;
};

}  // namespace weft
