#pragma once

#include <optional>

#include "core/files/parquet/column.h"

namespace weft {

// How the values of a page are written.
enum class ParquetEncoding : uint8_t { kPlain, kDictionary, kDeltaLength, kDelta };

// A page of a column: what its header says, checked against the file.
struct ParquetPage {
  // Of a page unpacked, and of the texts it stands for: more than any writer puts into one.
  static constexpr int64_t kLargest = int64_t{1} << 30;
  static constexpr int64_t kMostValues = int64_t{1} << 24;

  enum class Kind : uint8_t { kData, kDataV2, kDictionary };

  Kind kind = Kind::kData;
  size_t chunk = 0;
  int64_t begin = 0, size = 0;  // in the file, packed
  int64_t unpacked = 0;         // bytes
  int64_t values = 0;           // with nulls
  ParquetEncoding encoding = ParquetEncoding::kPlain;
  std::optional<uint32_t> crc;
  // Second version: levels stand before the rest, never packed.
  int64_t repetition_bytes = 0, definition_bytes = 0, nulls = 0;
  bool packed = true;
};

// Goes over the pages of a column, from header to header.
class ParquetPages {
 public:
  ParquetPages(const MappedFile& file, const ParquetColumn& column)
      : file_(file), column_(column) {}

  // The next page; nothing behind the last. Data pages have at least one value.
  std::optional<ParquetPage> next();

 private:
  ParquetPage read_header(int64_t end);
  void check(const ParquetPage& page, int64_t end);
  [[noreturn]] void refuse(const std::string& what) const;

  const MappedFile& file_;
  const ParquetColumn& column_;
  size_t chunk_ = 0;
  int64_t at_ = -1;     // in the file; -1: before the chunk
  int64_t values_ = 0;  // of the chunk, so far
  bool has_dictionary_ = false;
};

}  // namespace weft
