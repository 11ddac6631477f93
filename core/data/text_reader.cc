#include "core/data/text_reader.h"

#include <utility>

#include "core/base/error.h"

namespace weft {

TextReader::TextReader(const std::string& path) : path_(path), stream_(path) {}

bool TextReader::fill() {
  constexpr size_t kPiece = 1 << 18;
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t before = buffer_.size();
  if (before + kPiece > static_cast<size_t>(kLongest)) {
    throw ConfigError(
        "{}: a document of more than {} MB; cut the file, or use --document line or paragraph",
        path_, kLongest >> 20);
  }
  buffer_.resize(before + kPiece);
  const size_t got = stream_.read(buffer_.data() + before, kPiece);
  buffer_.resize(before + got);
  return got > 0;
}

std::optional<std::string> TextReader::line() {
  size_t searched = 0;
  for (;;) {
    const size_t end = buffer_.find('\n', at_ + searched);
    if (end != std::string::npos) {
      std::string line = buffer_.substr(at_, end - at_);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      at_ = end + 1;
      ++lines_;
      return line;
    }
    searched = buffer_.size() - at_;
    if (!fill()) break;
  }
  if (buffer_.empty()) return std::nullopt;
  ++lines_;
  at_ = 0;
  return std::exchange(buffer_, {});
}

std::string TextReader::rest() {
  while (fill()) {
  }
  return std::exchange(buffer_, {});
}

}  // namespace weft
