#include "core/text_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <zlib.h>

#include "core/error.h"

namespace weft {

struct TextReader::Stream {
  gzFile file = nullptr;
  ~Stream() {
    if (file != nullptr) gzclose(file);
  }
};

TextReader::TextReader(const std::string& path) : path_(path), stream_(std::make_unique<Stream>()) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw ConfigError("cannot open {}: {}", path, std::strerror(errno));
  stream_->file = gzdopen(fd, "rb");
  if (stream_->file == nullptr) {
    close(fd);
    throw Error("no memory to read {}", path);
  }
  gzbuffer(stream_->file, 1 << 18);
}

TextReader::~TextReader() = default;

bool TextReader::fill() {
  constexpr size_t kPiece = 1 << 18;
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t before = buffer_.size();
  if (before + kPiece > static_cast<size_t>(kLongest)) {
    throw ConfigError(
        "{}: a document of more than {} MB; cut the file, or use --document line or "
        "paragraph",
        path_, kLongest >> 20);
  }
  buffer_.resize(before + kPiece);
  const int got = gzread(stream_->file, buffer_.data() + before, kPiece);
  int code = Z_OK;
  const char* reason = gzerror(stream_->file, &code);
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
    std::string why = code == Z_ERRNO ? std::strerror(errno) : reason;  // "<fd:6>: what happened"
    if (why.starts_with("<fd:")) why.erase(0, why.find(": ") + 2);
    throw ConfigError("cannot read {}: {}", path_, why);
  }
  buffer_.resize(before + static_cast<size_t>(got));
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
