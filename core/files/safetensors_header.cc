#include "core/files/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_set>

#include <nlohmann/json.hpp>

namespace weft {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the format's reference implementation

// Bytes per element by the file's type names; 0 for names that do not exist.
int64_t bytes_of_type(std::string_view name) {
  for (const std::string_view one : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"}) {
    if (name == one) return 1;
  }
  for (const std::string_view two : {"I16", "U16", "F16", "BF16"}) {
    if (name == two) return 2;
  }
  for (const std::string_view four : {"I32", "U32", "F32"}) {
    if (name == four) return 4;
  }
  for (const std::string_view eight : {"I64", "U64", "F64"}) {
    if (name == eight) return 8;
  }
  return 0;
}

// Walks the JSON as it is parsed instead of building a document: names that stand twice are seen,
// nesting is limited, and nothing is kept that does not belong to the format.
class Walker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Walker(SafetensorsHeader& out) : out_(out) {}
  const std::string& problem() const { return problem_; }

  bool null() override { return refuse("a null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return refuse("a fraction"); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse("a number beyond 2^63");
    }
    const auto number = static_cast<int64_t>(value);
    if (place_ == Place::kShape) {
      if (tensor().shape.dims() == Shape::kMaxDims) return refuse("a seventh dimension");
      tensor().shape.append(number);
      return true;
    }
    if (place_ == Place::kOffsets && offsets_ < 2) {
      (offsets_++ == 0 ? tensor().begin : tensor().end) = number;
      return true;
    }
    return refuse("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      out_.metadata[key_] = value;
      return true;
    }
    if (place_ == Place::kTensor && key_ == "dtype") {
      tensor().type_name = value;
      return true;
    }
    return refuse("a string");
  }

  bool start_object(size_t) override {
    if (place_ == Place::kBefore) return go(Place::kTop);
    if (place_ != Place::kTop) return refuse("an object");
    if (key_ == "__metadata__") return go(Place::kMetadata);
    out_.tensors.emplace_back().name = key_;
    inner_keys_.clear();
    return go(Place::kTensor);
  }

  bool key(string_t& value) override {
    key_ = value;
    if (place_ == Place::kTop) {
      if (!names_.insert(value).second) return fail("the name " + printable(value) + " twice");
      return true;
    }
    if (!inner_keys_.insert(value).second) return fail("the key " + printable(value) + " twice");
    if (place_ == Place::kTensor && value != "dtype" && value != "shape" &&
        value != "data_offsets") {
      return fail("the unknown key " + printable(value));
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTop) return go(Place::kAfter);
    if (place_ == Place::kTensor && inner_keys_.size() != 3) {
      return fail("no dtype, shape or data_offsets");
    }
    inner_keys_.clear();
    return go(Place::kTop);
  }

  bool start_array(size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") return go(Place::kShape);
    if (place_ == Place::kTensor && key_ == "data_offsets") {
      offsets_ = 0;
      return go(Place::kOffsets);
    }
    return refuse("an array");
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_ != 2) return fail("not two data_offsets");
    return go(Place::kTensor);
  }

  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception&) override {
    problem_ = fmt::format("the header is not JSON at byte {}", 8 + at);
    return false;
  }

 private:
  enum class Place { kBefore, kTop, kMetadata, kTensor, kShape, kOffsets, kAfter };

  bool go(Place place) {
    place_ = place;
    return true;
  }
  FileTensor& tensor() { return out_.tensors.back(); }
  bool refuse(const char* what) { return fail(std::string(what) + " where none belongs"); }
  bool fail(const std::string& what) {
    const bool inside =
        place_ == Place::kTensor || place_ == Place::kShape || place_ == Place::kOffsets;
    problem_ = inside ? fmt::format("tensor {} has {}", printable(tensor().name), what)
                      : fmt::format("the header has {}", what);
    return false;
  }

  SafetensorsHeader& out_;
  Place place_ = Place::kBefore;
  std::string key_;
  int offsets_ = 0;
  std::unordered_set<std::string> names_, inner_keys_;
  std::string problem_;
};

// Shape times type must be the range, and the range must lie in the data.
void check_tensor(const std::string& path, const FileTensor& tensor, int64_t data_bytes) {
  const int64_t element = bytes_of_type(tensor.type_name);
  if (element == 0) {
    throw ConfigError("{}: tensor {} has the unknown dtype {}", path, printable(tensor.name),
                      printable(tensor.type_name));
  }
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    throw ConfigError("{}: tensor {} lies at {}..{} of {} bytes of data", path,
                      printable(tensor.name), tensor.begin, tensor.end, data_bytes);
  }
  int64_t bytes = element;
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      throw ConfigError("{}: tensor {} has the impossible shape {}", path, printable(tensor.name),
                        tensor.shape);
    }
  }
  if (bytes != tensor.end - tensor.begin) {
    throw ConfigError("{}: tensor {} of shape {} and type {} needs {} bytes, its range has {}",
                      path, printable(tensor.name), tensor.shape, tensor.type_name, bytes,
                      tensor.end - tensor.begin);
  }
}

// Sorted by place, every range must start where the one before it ends.
void check_cover(const std::string& path, const std::vector<FileTensor>& tensors,
                 int64_t data_bytes) {
  std::vector<const FileTensor*> sorted;
  for (const FileTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const FileTensor* a, const FileTensor* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  int64_t at = 0;
  for (const FileTensor* tensor : sorted) {
    if (tensor->begin != at) {
      throw ConfigError("{}: tensor {} starts at byte {} of the data, {} byte {}", path,
                        printable(tensor->name), tensor->begin,
                        tensor->begin < at ? "inside the one that ends at" : "after a gap from",
                        at);
    }
    at = tensor->end;
  }
  if (at != data_bytes) {
    throw ConfigError("{}: {} bytes of data, but the tensors end at {}", path, data_bytes, at);
  }
}

}  // namespace

std::string printable(std::string_view name) {
  constexpr size_t kLongest = 120;
  std::string out = "\"";
  for (const char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 32 || byte == 127) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (name.size() > kLongest ? "...\"" : "\"");
}

SafetensorsHeader parse_safetensors_header(const std::string& path,
                                           std::span<const std::byte> bytes) {
  uint64_t size = 0;
  if (bytes.size() < sizeof size) {
    throw ConfigError("{}: {} bytes are too few for a safetensors file", path, bytes.size());
  }
  std::memcpy(&size, bytes.data(), sizeof size);
  if (size > kMaxHeader || size > bytes.size() - sizeof size) {
    throw ConfigError(
        "{}: header of {} bytes in a file of {} (at most "
        "{}); not a safetensors file, or a truncated one",
        path, size, bytes.size(), kMaxHeader);
  }
  SafetensorsHeader header;
  header.data_begin = static_cast<int64_t>(sizeof size + size);
  const char* text = reinterpret_cast<const char*>(bytes.data()) + sizeof size;
  Walker walker(header);
  if (size == 0 || *text != '{') throw ConfigError("{}: the header is not a JSON object", path);
  if (!nlohmann::json::sax_parse(text, text + size, &walker)) {
    throw ConfigError("{}: {}", path, walker.problem());
  }
  const int64_t data_bytes = static_cast<int64_t>(bytes.size()) - header.data_begin;
  for (const FileTensor& tensor : header.tensors) check_tensor(path, tensor, data_bytes);
  check_cover(path, header.tensors, data_bytes);
  return header;
}

}  // namespace weft
