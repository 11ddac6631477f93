#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/files/parquet/codec.h"
#include "core/files/parquet/page.h"

namespace weft {

// The texts of a page, in order; null ones and those of absent rows as empty views.
struct ParquetTexts {
  std::vector<std::string_view> texts;  // into `bytes` or the dictionary's
  RawBytes bytes;
  std::shared_ptr<const ParquetTexts> dictionary;
};

// Thread-safe. ConfigError for what is damaged. `dictionary`: of the page's chunk, or null.
ParquetTexts read_texts(const MappedFile& file, const ParquetColumn& column,
                        const ParquetPage& page, std::shared_ptr<const ParquetTexts> dictionary);

}  // namespace weft
