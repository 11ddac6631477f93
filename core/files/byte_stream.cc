#include "core/files/byte_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "core/base/error.h"
#include "core/files/file_descriptor.h"

namespace weft {
namespace {

// Plain files and gzip: zlib tells the two apart.
class GzipSource final : public ByteStream::Source {
 public:
  GzipSource(std::string path, FileDescriptor fd) : path_(std::move(path)) {
    file_ = gzdopen(fd.get(), "rb");
    if (file_ == nullptr) throw Error("no memory to read {}", path_);
    fd.release();
    gzbuffer(file_, 1 << 18);
  }
  ~GzipSource() override { gzclose(file_); }

  size_t read(char* to, size_t size) override {
    const int got = gzread(file_, to, static_cast<unsigned>(size));
    int code = Z_OK;
    const char* reason = gzerror(file_, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      std::string why = code == Z_ERRNO ? std::strerror(errno) : reason;  // "<fd:6>: what happened"
      if (why.starts_with("<fd:")) why.erase(0, why.find(": ") + 2);
      throw ConfigError("cannot read {}: {}", path_, why);
    }
    return static_cast<size_t>(got);
  }

 private:
  std::string path_;
  gzFile file_ = nullptr;
};

// Frames of zstd, one after the other.
class ZstdSource final : public ByteStream::Source {
 public:
  ZstdSource(std::string path, FileDescriptor fd)
      : path_(std::move(path)),
        fd_(std::move(fd)),
        context_(ZSTD_createDCtx()),
        packed_(ZSTD_DStreamInSize()) {
    if (context_ == nullptr) throw Error("no memory to read {}", path_);
  }
  ~ZstdSource() override { ZSTD_freeDCtx(context_); }

  size_t read(char* to, size_t size) override {
    ZSTD_outBuffer out{to, size, 0};
    while (out.pos < out.size) {
      if (in_.pos == in_.size && !unpacked_ && !fill()) {
        if (inside_) throw ConfigError("cannot read {}: it ends inside a frame of zstd", path_);
        break;
      }
      const size_t left = ZSTD_decompressStream(context_, &out, &in_);
      if (ZSTD_isError(left)) refuse(left);
      inside_ = left != 0;
      unpacked_ = inside_ && out.pos == out.size;
    }
    return out.pos;
  }

 private:
  bool fill() {
    const ssize_t got = ::read(fd_.get(), packed_.data(), packed_.size());
    if (got < 0) throw ConfigError("cannot read {}: {}", path_, std::strerror(errno));
    in_ = {packed_.data(), static_cast<size_t>(got), 0};
    return got > 0;
  }

  [[noreturn]] void refuse(size_t code) const {
    if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge) {
      throw ConfigError(
          "cannot read {}: it needs a window of more than 128 MB (zstd --long); pack it again: "
          "zstd -dc --long=31 FILE | zstd > NEW",
          path_);
    }
    throw ConfigError("cannot read {}: zstd: {}", path_, ZSTD_getErrorName(code));
  }

  std::string path_;
  FileDescriptor fd_;
  ZSTD_DCtx* context_;
  std::vector<char> packed_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = false;    // a frame has begun and not ended
  bool unpacked_ = false;  // the context may hold more than the last buffer took
};

// A frame of zstd begins there, or one that zstd skips (pzstd writes those first).
bool is_zstd(int fd) {
  std::array<unsigned char, 4> m{};
  if (pread(fd, m.data(), m.size(), 0) != 4) return false;
  const bool frame = m[0] == 0x28 && m[1] == 0xB5 && m[2] == 0x2F && m[3] == 0xFD;
  const bool skipped = (m[0] & 0xF0) == 0x50 && m[1] == 0x2A && m[2] == 0x4D && m[3] == 0x18;
  return frame || skipped;
}

}  // namespace

ByteStream::ByteStream(const std::string& path) {
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) throw ConfigError("cannot open {}: {}", path, std::strerror(errno));
  if (is_zstd(fd.get()))
    source_ = std::make_unique<ZstdSource>(path, std::move(fd));
  else
    source_ = std::make_unique<GzipSource>(path, std::move(fd));
}

ByteStream::~ByteStream() = default;

size_t ByteStream::read(char* to, size_t size) { return source_->read(to, size); }

}  // namespace weft
