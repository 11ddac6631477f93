#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/files/mapped_file.h"
#include "core/files/new_file.h"
#include "core/memory/tensor.h"

namespace weft {

// What a tensor of a safetensors file can be made of. Files may hold the others (kOther), whose
// sizes are checked like everybody's but whose elements cannot be read here.
enum class FileType : uint8_t { kF32, kBF16, kF16, kI32, kI64, kOther };

struct FileTensor {
  std::string name;
  FileType type = FileType::kOther;
  std::string type_name;  // as the file spells it: "BF16"
  Shape shape;
  int64_t begin = 0, end = 0;  // bytes, counted from the end of the header
};

using Metadata = std::map<std::string, std::string>;

// A safetensors file, mapped and completely checked before anything of it is used: a header of at
// most 100 MB of plain JSON, no name twice, ranges that fill the file without overlap or gap and
// fit shape and type. Anything else is a ConfigError that names the file and the tensor. Layout:
// u64 header size, header, data; little endian.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const Metadata& metadata() const { return metadata_; }
  const std::vector<FileTensor>& tensors() const { return tensors_; }  // in the order of the header
  const FileTensor* find(std::string_view name) const;                 // null when absent
  const FileTensor& at(std::string_view name) const;                   // ConfigError when absent

  // The bytes in place, for the types that Weft computes with (not F16) and whose data the file
  // aligns.
  ConstView view(const FileTensor& tensor) const;
  ConstView view(std::string_view name) const { return view(at(name)); }

  // A copy as `type`: f32 and bf16 from F32, BF16 and F16 (rounded to nearest), integers from
  // integers of the same width.
  Tensor read(Pool& pool, const FileTensor& tensor, DType type,
              Label label = Label::kParameters) const;
  Tensor read(Pool& pool, std::string_view name, DType type,
              Label label = Label::kParameters) const {
    return read(pool, at(name), type, label);
  }
  // The same into memory that is there already; `out` has as many elements and is contiguous.
  void read_into(const FileTensor& tensor, View out) const;

 private:
  MappedFile file_;
  Metadata metadata_;
  std::vector<FileTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  const std::byte* data_ = nullptr;
};

// Writes a file of known contents tensor by tensor, so that a model larger than memory can pass
// through. Tensors lie in the file in `order()`: larger elements first, which keeps all of them
// aligned, else as given. The file appears when finished.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
    bool half = false;  // the two bytes of kBF16 elements are IEEE halves: F16 in the file
  };

  SafetensorsWriter(const std::string& path, const Metadata& metadata, std::vector<Entry> entries);
  const std::vector<Entry>& order() const { return entries_; }
  void write(ConstView tensor);  // the next one in `order()`; rows may be strided
  // The next elements of the next one, contiguous: for a tensor larger than memory.
  void write_part(ConstView elements);
  void finish();

 private:
  NewFile file_;
  std::vector<Entry> entries_;
  size_t next_ = 0;
  int64_t part_ = 0;  // elements of the next one that are written already
};

struct NamedView {
  std::string name;
  ConstView view;
};

void write_safetensors(const std::string& path, const Metadata& metadata,
                       const std::vector<NamedView>& tensors);

float half_to_float(uint16_t bits);  // IEEE binary16, exact
uint16_t float_to_half(float x);     // to nearest, ties to even; beyond 65504: infinity

}  // namespace weft
