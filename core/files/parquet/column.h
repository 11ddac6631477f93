#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/files/mapped_file.h"

namespace weft {

enum class ParquetCodec : uint8_t { kNone = 0, kSnappy = 1, kGzip = 2, kZstd = 6 };

// A column of texts in a Parquet file: a string column, or one of lists of strings. Read from the
// file's footer, which is not trusted: every number is checked against the file before it is used.
struct ParquetColumn {
  // The pages of the column in one row group.
  struct Chunk {
    int64_t begin, end;  // in the file
    int64_t values;      // with nulls
    ParquetCodec codec;
  };

  std::string name;
  // How many of its ancestors and itself may be absent, respectively may repeat: a value is there
  // when its definition level is the former.
  int definition = 0, repetition = 0;
  std::vector<Chunk> chunks;
};

// The file begins as Parquet files do.
bool is_parquet(const std::string& path);

// ConfigError for damaged files, for columns that are no texts (with the names of those that are),
// and by name for what is not supported.
ParquetColumn parquet_column(const MappedFile& file, const std::string& name);

}  // namespace weft
