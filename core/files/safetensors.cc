#include "core/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include "core/files/safetensors_header.h"
#include "core/host_access.h"

namespace weft {
namespace {

FileType type_named(std::string_view name) {
  if (name == "F32") return FileType::kF32;
  if (name == "BF16") return FileType::kBF16;
  if (name == "F16") return FileType::kF16;
  if (name == "I32") return FileType::kI32;
  if (name == "I64") return FileType::kI64;
  return FileType::kOther;
}

std::string_view file_name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "F32";
    case DType::kBF16: return "BF16";
    case DType::kI32: return "I32";
    case DType::kI64: return "I64";
    default: return "F64";
  }
}

// Element i of `from` as a float. Sources may be unaligned.
float load(FileType type, const std::byte* from, int64_t i) {
  if (type == FileType::kF32) {
    float x;
    std::memcpy(&x, from + 4 * i, 4);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, from + 2 * i, 2);
  return type == FileType::kBF16 ? to_float(bf16{bits}) : half_to_float(bits);
}

bool same_type(FileType from, DType to) {
  return (from == FileType::kF32 && to == DType::kF32) ||
         (from == FileType::kBF16 && to == DType::kBF16) ||
         (from == FileType::kI32 && to == DType::kI32) ||
         (from == FileType::kI64 && to == DType::kI64);
}

bool is_float(FileType type) {
  return type == FileType::kF32 || type == FileType::kBF16 || type == FileType::kF16;
}

}  // namespace

float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} >> 15 << 31;
  const uint32_t exponent = bits >> 10 & 31u, fraction = bits & 1023u;
  if (exponent == 0) {  // zero or subnormal: a multiple of 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1.0p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  return std::bit_cast<float>(sign | (exponent + 112u) << 23 | fraction << 13);
}

uint16_t float_to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x47800000u) return sign | 0x7c00u;  // 65536 and more
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1.0p24f;
    return sign | static_cast<uint16_t>(std::nearbyint(scaled));
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u);
  return sign | static_cast<uint16_t>(rounded >> 13);
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  SafetensorsHeader header = parse_safetensors_header(path, file_.bytes());
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
  for (FileTensor& tensor : tensors_) tensor.type = type_named(tensor.type_name);
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  data_ = file_.data() + header.data_begin;
}

const FileTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const FileTensor& SafetensorsFile::at(std::string_view name) const {
  const FileTensor* found = find(name);
  if (found == nullptr) {
    throw ConfigError("{}: no tensor \"{}\" among its {}", path(), name, tensors_.size());
  }
  return *found;
}

ConstView SafetensorsFile::view(const FileTensor& tensor) const {
  DType dtype = DType::kF32;
  switch (tensor.type) {
    case FileType::kF32: dtype = DType::kF32; break;
    case FileType::kBF16: dtype = DType::kBF16; break;
    case FileType::kI32: dtype = DType::kI32; break;
    case FileType::kI64: dtype = DType::kI64; break;
    default:
      throw ConfigError("{}: tensor {} is {}, which cannot be used in place", path(),
                        printable(tensor.name), tensor.type_name);
  }
  const std::byte* at = data_ + tensor.begin;
  if (std::bit_cast<uintptr_t>(at) % static_cast<uintptr_t>(size_of(dtype)) != 0) {
    throw ConfigError("{}: tensor {} is not aligned to its {} bytes per element", path(),
                      printable(tensor.name), size_of(dtype));
  }
  const int64_t width = tensor.shape.dims() == 0 ? 1 : tensor.shape.back();
  return {at, tensor.shape, width, dtype, {}};
}

Tensor SafetensorsFile::read(Pool& pool, const FileTensor& tensor, DType type, Label label) const {
  Tensor out = Tensor::empty(pool, tensor.shape, type, label);
  read_into(tensor, out);
  return out;
}

void SafetensorsFile::read_into(const FileTensor& tensor, View out) const {
  const int64_t count = tensor.shape.elements();
  WEFT_CHECK(out.contiguous() && out.shape.elements() == count,
             "tensor {} of {} has shape {}, read into {}", tensor.name, path(), tensor.shape,
             out.shape);
  const std::byte* from = data_ + tensor.begin;
  if (same_type(tensor.type, out.dtype)) {
    if (count > 0) std::memcpy(out.data, from, static_cast<size_t>(tensor.end - tensor.begin));
  } else if (is_float(tensor.type) && out.dtype == DType::kF32) {
    float* to = host<float>(out);
    for (int64_t i = 0; i < count; ++i) to[i] = load(tensor.type, from, i);
  } else if (is_float(tensor.type) && out.dtype == DType::kBF16) {
    bf16* to = host<bf16>(out);
    for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(load(tensor.type, from, i));
  } else {
    throw ConfigError("{}: tensor {} is {}, needed is {}", path(), printable(tensor.name),
                      tensor.type_name, name_of(out.dtype));
  }
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const Metadata& metadata,
                                     std::vector<Entry> entries)
    : file_(path), entries_(std::move(entries)) {
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return size_of(a.dtype) > size_of(b.dtype);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t at = 0;
  std::set<std::string_view> names = {"__metadata__"};
  for (const Entry& entry : entries_) {
    WEFT_CHECK(names.insert(entry.name).second, "tensor name \"{}\" twice in {}", entry.name, path);
    const int64_t end = at + entry.shape.elements() * size_of(entry.dtype);
    WEFT_CHECK(!entry.half || entry.dtype == DType::kBF16, "halves of {} bytes in {}",
               size_of(entry.dtype), path);
    header[entry.name] = {{"dtype", entry.half ? "F16" : file_name_of(entry.dtype)},
                          {"shape", std::vector<int64_t>(entry.shape.begin(), entry.shape.end())},
                          {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts aligned
  const auto size = static_cast<uint64_t>(text.size());
  file_.write(&size, sizeof size);
  file_.write(text.data(), static_cast<int64_t>(text.size()));
}

void SafetensorsWriter::write(ConstView tensor) {
  WEFT_CHECK(next_ < entries_.size(), "more tensors than the {} announced for {}", entries_.size(),
             file_.path());
  const Entry& entry = entries_[next_++];
  WEFT_CHECK(tensor.dtype == entry.dtype && tensor.shape == entry.shape,
             "tensor \"{}\" was announced as {} {}, is {} {}", entry.name, name_of(entry.dtype),
             entry.shape, name_of(tensor.dtype), tensor.shape);
  const int64_t element = size_of(tensor.dtype);
  if (tensor.empty()) return;
  if (tensor.contiguous()) {
    file_.write(tensor.data, tensor.shape.elements() * element);
    return;
  }
  const auto* from = static_cast<const std::byte*>(tensor.data);
  for (int64_t row = 0; row < tensor.rows(); ++row) {
    file_.write(from + row * tensor.row_stride * element, tensor.width() * element);
  }
}

void SafetensorsWriter::write_part(ConstView elements) {
  WEFT_CHECK(next_ < entries_.size(), "more tensors than the {} announced for {}", entries_.size(),
             file_.path());
  const Entry& entry = entries_[next_];
  const int64_t count = elements.shape.elements(), all = entry.shape.elements();
  WEFT_CHECK(elements.dtype == entry.dtype && elements.contiguous() && part_ + count <= all,
             "elements {}..{} of tensor \"{}\", which has {}", part_, part_ + count, entry.name,
             all);
  file_.write(elements.data, count * size_of(entry.dtype));
  part_ += count;
  if (part_ < all) return;
  part_ = 0;
  ++next_;
}

void SafetensorsWriter::finish() {
  WEFT_CHECK(next_ == entries_.size(), "{} of {} tensors of {} written", next_, entries_.size(),
             file_.path());
  file_.finish();
}

void write_safetensors(const std::string& path, const Metadata& metadata,
                       const std::vector<NamedView>& tensors) {
  std::vector<SafetensorsWriter::Entry> entries;
  std::map<std::string_view, const NamedView*> by_name;
  for (const NamedView& tensor : tensors) {
    entries.push_back({tensor.name, tensor.view.dtype, tensor.view.shape});
    by_name.emplace(tensor.name, &tensor);
  }
  SafetensorsWriter writer(path, metadata, std::move(entries));
  for (const auto& entry : writer.order()) writer.write(by_name.at(entry.name)->view);
  writer.finish();
}

}  // namespace weft
