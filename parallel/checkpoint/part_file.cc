#include "parallel/checkpoint/part_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/files/hash.h"
#include "core/files/system_calls.h"

namespace weft {
namespace {

constexpr int64_t kBlock = kHashedBlock;  // bytes hashed and written, or read and hashed, at a time
constexpr int64_t kHint = 8 << 20;        // bytes between two hints to start writing to the disk
constexpr int64_t kUnsynced = 256 << 20;  // bytes that may be on their way: the last sync is short

}  // namespace

PartFile::PartFile(const std::string& path, std::vector<Manifest::Piece>& pieces,
                   std::function<void()> progress)
    : pieces_(pieces),
      progress_(std::move(progress)),
      file_(path),
      complete_(pieces.size(), false),
      found_(pieces.size()) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (bytes_of(pieces_[i]) > 0) order_.push_back(i);
  }
  std::sort(order_.begin(), order_.end(),
            [&](size_t a, size_t b) { return pieces_[a].position < pieces_[b].position; });
  ready_ = order_.empty() ? file_.size() : pieces_[order_[0]].position;
  fd_ = sys::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd_ < 0) fail("opened");
  // Asks for all the room at once: a disk without it says so before anything is written.
  if (file_.size() > 0 && sys::allocate(fd_, file_.size()) != 0 && errno != EOPNOTSUPP &&
      errno != ENOSYS) {
    const int why = errno;
    sys::close(fd_);
    errno = why;
    fail("given its room");
  }
  follower_ = std::thread([this] {
    try {
      follow();
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

PartFile::~PartFile() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  if (follower_.joinable()) follower_.join();
  if (fd_ >= 0) sys::close(fd_);
}

void PartFile::fail(const char* what) const {
  throw Error("{}: cannot be {}: {}", file_.path(), what, std::strerror(errno));
}

void PartFile::write(size_t piece, const std::byte* data) {
  const int64_t bytes = bytes_of(pieces_[piece]);
  Hasher hash;
  for (int64_t done = 0; done < bytes;) {
    const int64_t count = std::min(kBlock, bytes - done);
    hash.add({data + done, static_cast<size_t>(count)});
    write_block(pieces_[piece].position + done, data + done, count);
    done += count;
    written(piece, done);
    if (progress_) progress_();
  }
  pieces_[piece].hash = hash.text();
}

void PartFile::write_block(int64_t position, const std::byte* data, int64_t bytes) {
  if (!sys::pwrite_all(fd_, data, static_cast<size_t>(bytes), position)) fail("written");
  // Hints: errors show in fsync.
  const int64_t end = position + bytes;
  if (position < hinted_) hinted_ = position;  // pieces that are not in the order of the file
  if (end - hinted_ < kHint) return;
  sync_file_range(fd_, hinted_, end - hinted_, SYNC_FILE_RANGE_WRITE);
  hinted_ = end;
  if (end - begun_ < 2 * kUnsynced) return;
  sync_file_range(fd_, begun_, kUnsynced,
                  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  begun_ += kUnsynced;
}

void PartFile::written(size_t piece, int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    complete_[piece] = bytes == bytes_of(pieces_[piece]);
    while (first_ < order_.size() && complete_[order_[first_]]) ++first_;
    if (first_ == order_.size()) {
      ready_ = file_.size();
    } else {
      const size_t open = order_[first_];
      ready_ = pieces_[open].position + (open == piece ? bytes : 0);
    }
  }
  more_.notify_one();
}

// Where the block at `at` ends, once it may be read; nothing more to read: `at`.
int64_t PartFile::wait_for_block(int64_t at) {
  const int64_t end = std::min(at + kBlock, file_.size());
  std::unique_lock lock(mutex_);
  more_.wait(lock, [&] { return stop_ || ready_ >= end; });
  return ready_ >= end ? end : at;
}

void PartFile::follow() {
  std::vector<std::byte> block(static_cast<size_t>(std::min(kBlock, file_.size())));
  Hasher slice;
  auto piece = order_.begin();
  int64_t at = 0;
  while (at < file_.size()) {
    const int64_t end = wait_for_block(at);
    if (end == at) return;  // given up
    const auto bytes = std::span(block).first(static_cast<size_t>(end - at));
    file_.read(at, bytes);
    blocks_ += hash_of(bytes);
    for (; piece != order_.end(); ++piece) {
      const int64_t first = pieces_[*piece].position, last = first + bytes_of(pieces_[*piece]);
      const int64_t from = std::max(at, first), to = std::min(end, last);
      if (from < to) {
        slice.add(bytes.subspan(static_cast<size_t>(from - at), static_cast<size_t>(to - from)));
      }
      if (last > end) break;
      found_[*piece] = slice.text();
      slice = Hasher();
    }
    at = end;
  }
}

Manifest::File PartFile::finish() {
  if (sys::sync(fd_) != 0) fail("synced to the disk");
  follower_.join();
  if (failure_) std::rethrow_exception(failure_);
  if (sys::close(std::exchange(fd_, -1)) != 0) fail("closed");
  for (const size_t i : order_) {
    if (found_[i] != pieces_[i].hash) {
      throw Error("{}: reads back other bytes than were written ({})", file_.path(),
                  pieces_[i].tensor);
    }
  }
  const std::string name = file_.path().substr(file_.path().rfind('/') + 1);
  return {name, file_.size(), blocks_};
}

}  // namespace weft
