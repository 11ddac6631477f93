#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

// Thrift's compact protocol, read from bytes that are not trusted: no length is believed before
// there are bytes for it, and nesting is bounded. Everything throws ConfigError with the place.
class ThriftReader {
 public:
  enum class Type : uint8_t {
    kStop = 0,
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kI16 = 4,
    kI32 = 5,
    kI64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12
  };

  // `offset`: where the bytes begin in the file, for messages.
  ThriftReader(std::span<const std::byte> bytes, std::string file, int64_t offset)
      : bytes_(bytes), file_(std::move(file)), offset_(offset) {}

  // Calls field(id, type) for every field of a struct; it returns whether it has read the value,
  // which is skipped otherwise.
  template <class Field>
  void structure(Field&& field) {
    const Nested nested(*this);
    int id = 0;
    for (;;) {
      const auto head = static_cast<uint8_t>(byte());
      const Type type = type_of(head & 15);
      if (type == Type::kStop) return;
      const int64_t next = (head >> 4) != 0 ? id + (head >> 4) : zigzag();
      if (next < 0 || next > INT16_MAX) refuse("a field's number");
      id = static_cast<int>(next);
      if (!field(id, type)) skip(type);
    }
  }
  template <class Field>
  void structure(Type type, Field&& field) {
    expect(type, Type::kStruct, "a struct");
    structure(field);
  }

  // Calls each(type of the elements) for every element.
  template <class Each>
  void list(Type type, Each&& each) {
    expect(type, Type::kList, "a list");
    const Nested nested(*this);
    const auto [element, count] = list_head();
    for (int64_t i = 0; i < count; ++i) each(element);
  }

  int64_t whole(Type type);
  int64_t whole(Type type, int64_t low, int64_t high, const char* what);
  bool flag(Type type);
  std::string_view text(Type type);
  void skip(Type type);

  size_t at() const { return at_; }
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  static constexpr int kDeepest = 32;
  struct Nested {
    explicit Nested(ThriftReader& r) : reader(r) {
      if (++reader.depth_ > kDeepest) reader.refuse("structs nested too deeply");
    }
    ~Nested() { --reader.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ThriftReader& reader;
  };
  struct ListHead {
    Type element;
    int64_t count;
  };

  Type type_of(int code) const;
  void expect(Type type, Type wanted, const char* what) const;
  std::byte byte();
  uint64_t varint();
  int64_t zigzag();
  int64_t length();  // of something with at least one byte each
  ListHead list_head();
  void advance(size_t bytes);

  std::span<const std::byte> bytes_;
  std::string file_;
  int64_t offset_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace weft
