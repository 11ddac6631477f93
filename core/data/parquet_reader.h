#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <string_view>

#include "core/files/parquet/texts.h"

namespace weft {

// The texts of a column of a Parquet file, one after the other; a list's texts each for itself, and
// an empty one for whatever is null. Pages are unpacked ahead, on every core. Memory is bounded by
// the largest page (1 GiB unpacked; usually 1 MB) and kAhead bytes.
class ParquetReader {
 public:
  static constexpr int64_t kAhead = int64_t{64} << 20;

  ParquetReader(const std::string& path, const std::string& column, int threads);

  // Valid until the next call.
  std::optional<std::string_view> next();
  void skip(int64_t texts);  // unpacks only the page it ends in; before the first next

 private:
  void read_ahead();
  void start_pages();
  bool next_page();

  MappedFile file_;
  ParquetColumn column_;
  ParquetPages pages_;
  size_t threads_;
  std::shared_ptr<const ParquetTexts> dictionary_;  // of the chunk that is read ahead
  struct Ahead {
    std::future<ParquetTexts> texts;
    int64_t bytes;  // that it takes
  };
  std::optional<ParquetPage> waiting_;  // has no room yet
  std::deque<Ahead> ahead_;
  int64_t bytes_ahead_ = 0;
  bool broken_ = false;  // behind what is read ahead
  ParquetTexts now_;
  size_t at_ = 0;
};

}  // namespace weft
