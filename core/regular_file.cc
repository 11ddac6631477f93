#include "core/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"

namespace weft {
namespace {

// Large enough that threads seldom wait for each other, small enough for the caches of most machines.
constexpr int64_t kBlock = 4 << 20;  // bytes
constexpr int64_t kAhead = 6;        // blocks
constexpr int kReaders = 4;          // requests that a disk has at a time

// Blocks of a file, read by several threads, used by one in their order.
class Ahead {
 public:
  explicit Ahead(const RegularFile& file) : file_(file) {
    for (int64_t i = 0; i < std::min(kAhead, blocks_); ++i) {
      slots_[static_cast<size_t>(i)].bytes = std::make_unique_for_overwrite<std::byte[]>(kBlock);
    }
    for (int i = 0; i < kReaders; ++i) readers_.emplace_back([this] { read_some(); });
  }
  ~Ahead() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& reader : readers_) reader.join();
  }

  void use_all(const UseBlock& use) {
    for (int64_t block = 0; block < blocks_; ++block) {
      const Slot& slot = slots_[static_cast<size_t>(block % kAhead)];
      {
        std::unique_lock lock(mutex_);
        filled_.wait(lock, [&] { return slot.block == block || failure_; });
        if (failure_) std::rethrow_exception(failure_);
      }
      use(block * kBlock, {slot.bytes.get(), size_of(block)});
      {
        const std::lock_guard lock(mutex_);
        used_ = block + 1;
      }
      room_.notify_all();
    }
  }

 private:
  struct Slot {
    int64_t block = -1;
    std::unique_ptr<std::byte[]> bytes;
  };

  size_t size_of(int64_t block) const {
    return static_cast<size_t>(std::min(kBlock, file_.size() - block * kBlock));
  }

  void read_some() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [&] { return stop_ || next_ < std::min(blocks_, used_ + kAhead); });
      if (stop_) return;
      const int64_t block = next_++;
      Slot& slot = slots_[static_cast<size_t>(block % kAhead)];
      lock.unlock();
      std::exception_ptr failure;
      try {
        file_.read(block * kBlock, {slot.bytes.get(), size_of(block)});
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      slot.block = block;
      if (failure) failure_ = failure;
      filled_.notify_all();
    }
  }

  const RegularFile& file_;
  const int64_t blocks_ = (file_.size() + kBlock - 1) / kBlock;
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  std::array<Slot, kAhead> slots_;
  int64_t next_ = 0, used_ = 0;  // blocks whose reading has begun; that need their room no longer
  bool stop_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> readers_;
};

}  // namespace

RegularFile::RegularFile(std::string path) : path_(std::move(path)) {
  // Not blocking: opening a pipe would otherwise wait for a writer before it can be refused.
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw ConfigError("cannot open {}: {}", path_, std::strerror(errno));
  struct stat info {};
  const bool known = fstat(fd_, &info) == 0;
  const int why = errno;
  if (known && S_ISREG(info.st_mode)) {
    size_ = info.st_size;
    return;
  }
  close(fd_);
  if (!known) throw Error("cannot stat {}: {}", path_, std::strerror(why));
  throw ConfigError("{} is not a regular file", path_);
}

RegularFile::~RegularFile() { close(fd_); }

void RegularFile::read(int64_t at, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t done = pread(fd_, into.data(), into.size(), at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw Error("cannot read {}: {}", path_, std::strerror(errno));
    if (done == 0) throw Error("{} became shorter while it was read", path_);
    at += done;
    into = into.subspan(static_cast<size_t>(done));
  }
}

void read_through(const RegularFile& file, const UseBlock& use) {
  if (file.size() > kBlock) return Ahead(file).use_all(use);
  std::vector<std::byte> all(static_cast<size_t>(file.size()));
  file.read(0, all);
  if (!all.empty()) use(0, all);
}

}  // namespace weft
