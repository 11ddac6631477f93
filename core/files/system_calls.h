#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// The system calls that decide whether a file is whole. The project makes them through this table,
// so that a test, or a user who wants to see what a broken disk does, can let any of them fail.
// Results and errno are those of the system. A call that a signal interrupted is made again, up to
// a limit: who is interrupted for ever is told so.
namespace weft::sys {

enum class Call : uint8_t {
  kOpen,
  kClose,
  kRead,   // read and pread
  kWrite,  // write and pwrite
  kSeek,
  kStat,  // of an open file
  kSync,
  kTruncate,
  kAllocate,
  kRename,  // and the exchange of two names
  kRemove,
  kRoom,  // what a disk has left
  kCount,
};
std::string_view name_of(Call call);

int open(const char* path, int flags, mode_t mode = 0);
int close(int file);
ssize_t read(int file, void* into, size_t bytes);
ssize_t pread(int file, void* into, size_t bytes, off_t at);
ssize_t write(int file, const void* from, size_t bytes);
ssize_t pwrite(int file, const void* from, size_t bytes, off_t at);
off_t seek(int file, off_t at, int whence);
// All bytes, however many calls that takes; false where they do not arrive.
bool pwrite_all(int file, const void* from, size_t bytes, off_t at);
int stat(int file, struct ::stat* info);
int sync(int file);
int truncate(int file, off_t bytes);
int allocate(int file, off_t bytes);
int rename(const char* from, const char* to);
int exchange(const char* one, const char* other);
int remove(const char* path);
int room(const char* path, struct ::statvfs* disk);

// An order to fail. Counted are the calls of this name on files whose path contains `path`, from
// the moment of the order on.
struct Failure {
  Call call = Call::kWrite;
  int error = EIO;
  int64_t nth = 1;        // the first that fails
  bool lasting = false;   // so do all later ones
  std::string path = {};  // of an open file, as the system knows it now
};
// "write:EIO", "rename:EROFS:2", "sync:EIO:1+:manifest" (from the first on, where the path
// contains manifest). ConfigError where it is no such text.
Failure failure_from(std::string_view text);

// Makes calls of this process fail while it lives. Several may live at once.
class Failing {
 public:
  explicit Failing(Failure failure);
  ~Failing();
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;

  int64_t failed() const;  // calls that did so far

 private:
  int64_t id_;
};

}  // namespace weft::sys
