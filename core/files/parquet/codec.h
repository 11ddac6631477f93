#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/files/parquet/column.h"

namespace weft {

// Bytes without the zeros that a vector would begin with.
struct RawBytes {
  std::unique_ptr<std::byte[]> data;
  size_t size = 0;
  std::span<const std::byte> span() const { return {data.get(), size}; }
};

// `packed` as exactly `size` bytes. ConfigError starting with `where` when it is something else;
// where the packed bytes tell their size, before any memory is taken.
RawBytes unpacked(ParquetCodec codec, std::span<const std::byte> packed, size_t size,
                  const std::string& where);

}  // namespace weft
