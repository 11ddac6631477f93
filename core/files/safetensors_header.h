#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/safetensors.h"

namespace weft {

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<FileTensor> tensors;  // `type` is left to the reader
  int64_t data_begin = 0;           // bytes from the start of the file
};

// Reads and checks the header of the file whose bytes these are. Memory taken is bounded by the
// size of the header, whatever it says.
SafetensorsHeader parse_safetensors_header(const std::string& path,
                                           std::span<const std::byte> bytes);

// A name out of a file, quoted, for a message on a terminal: cut when long, control bytes escaped.
std::string printable(std::string_view name);

}  // namespace weft
