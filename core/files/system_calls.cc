#include "core/files/system_calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <list>
#include <mutex>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/nearest.h"

namespace weft::sys {
namespace {

constexpr int kInterruptions = 1000;  // of one call in a row

struct Order {
  int64_t id;
  Failure failure;
  int64_t calls = 0, failed = 0;
};
// Read without the lock as long as there is no order, which is always so outside of tests.
std::atomic<int> orders_given{0};
std::mutex orders_mutex;
std::list<Order>& orders() {
  static std::list<Order> all;
  return all;
}

std::string path_of(int file) {
  std::error_code gone;
  return std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file), gone).string();
}
std::string path_of(const char* path) { return path; }

// Whether this call is ordered to fail; errno is then set.
template <class Where>
bool fails(Call call, Where where) {
  if (orders_given.load(std::memory_order_relaxed) == 0) return false;
  const std::string path = path_of(where);
  const std::lock_guard lock(orders_mutex);
  for (Order& order : orders()) {
    const Failure& f = order.failure;
    if (f.call != call || path.find(f.path) == std::string::npos) continue;
    ++order.calls;
    if (order.calls < f.nth || (order.calls > f.nth && !f.lasting)) continue;
    ++order.failed;
    errno = f.error;
    return true;
  }
  return false;
}

// The call, or the failure ordered for it, until no signal interrupts it any more.
template <class Where, class Make>
auto make(Call call, Where where, Make&& system_call) -> decltype(system_call()) {
  for (int i = 0;; ++i) {
    const auto result = fails(call, where) ? decltype(system_call()){-1} : system_call();
    if (result != -1 || errno != EINTR || i == kInterruptions) return result;
  }
}

constexpr std::array<std::string_view, static_cast<size_t>(Call::kCount)> kNames = {
    "open", "close",    "read",     "write",  "seek",   "stat",
    "sync", "truncate", "allocate", "rename", "remove", "room"};

struct NamedError {
  std::string_view name;
  int number;
};
constexpr std::array kErrors = {NamedError{"EIO", EIO},       NamedError{"ENOSPC", ENOSPC},
                                NamedError{"EROFS", EROFS},   NamedError{"EINTR", EINTR},
                                NamedError{"ENOMEM", ENOMEM}, NamedError{"EACCES", EACCES},
                                NamedError{"ENOENT", ENOENT}, NamedError{"EDQUOT", EDQUOT}};

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw ConfigError("'{}' is no failing call: {}; for example write:EIO or sync:EIO:2:manifest",
                    text, why);
}

}  // namespace

std::string_view name_of(Call call) { return kNames[static_cast<size_t>(call)]; }

int open(const char* path, int flags, mode_t mode) {
  return make(Call::kOpen, path, [&] { return ::open(path, flags, mode); });
}

// The system closes the file whatever it answers: it must not be closed twice.
int close(int file) {
  const int ordered = fails(Call::kClose, file) ? errno : 0;
  const int failed = ::close(file) != 0 ? errno : 0;
  errno = ordered != 0 ? ordered : failed;
  return errno == 0 || errno == EINTR ? 0 : -1;
}

ssize_t read(int file, void* into, size_t bytes) {
  return make(Call::kRead, file, [&] { return ::read(file, into, bytes); });
}
ssize_t pread(int file, void* into, size_t bytes, off_t at) {
  return make(Call::kRead, file, [&] { return ::pread(file, into, bytes, at); });
}
ssize_t write(int file, const void* from, size_t bytes) {
  return make(Call::kWrite, file, [&] { return ::write(file, from, bytes); });
}
ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  return make(Call::kWrite, file, [&] { return ::pwrite(file, from, bytes, at); });
}
off_t seek(int file, off_t at, int whence) {
  return make(Call::kSeek, file, [&] { return ::lseek(file, at, whence); });
}
bool pwrite_all(int file, const void* from, size_t bytes, off_t at) {
  const char* data = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t done = pwrite(file, data, bytes, at);
    if (done == 0) errno = ENOSPC;
    if (done <= 0) return false;
    data += done;
    bytes -= static_cast<size_t>(done);
    at += done;
  }
  return true;
}
int stat(int file, struct ::stat* info) {
  return make(Call::kStat, file, [&] { return ::fstat(file, info); });
}
int sync(int file) {
  return make(Call::kSync, file, [&] { return ::fsync(file); });
}
int truncate(int file, off_t bytes) {
  return make(Call::kTruncate, file, [&] { return ::ftruncate(file, bytes); });
}
int allocate(int file, off_t bytes) {
  return make(Call::kAllocate, file, [&] { return ::fallocate(file, 0, 0, bytes); });
}
int rename(const char* from, const char* to) {
  return make(Call::kRename, from, [&] { return ::rename(from, to); });
}
int exchange(const char* one, const char* other) {
  return make(Call::kRename, one,
              [&] { return ::renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE); });
}
int remove(const char* path) {
  return make(Call::kRemove, path, [&] { return ::unlink(path); });
}
int room(const char* path, struct ::statvfs* disk) {
  return make(Call::kRoom, path, [&] { return ::statvfs(path, disk); });
}

Failure failure_from(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ':' && words.size() < 4) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  Failure failure;
  const auto call = std::find(kNames.begin(), kNames.end(), words[0]);
  if (call == kNames.end()) {
    const std::vector<std::string> known(kNames.begin(), kNames.end());
    refuse(text,
           fmt::format("there is no call '{}', {}", words[0], nearest_or_all(words[0], known)));
  }
  failure.call = static_cast<Call>(call - kNames.begin());
  const std::string error_name = words.size() > 1 ? words[1] : "EIO";
  const auto error = std::find_if(kErrors.begin(), kErrors.end(),
                                  [&](const NamedError& e) { return e.name == error_name; });
  if (error == kErrors.end()) {
    std::vector<std::string> known;
    for (const NamedError& e : kErrors) known.emplace_back(e.name);
    refuse(text, fmt::format("there is no error '{}', {}", error_name,
                             nearest_or_all(error_name, known)));
  }
  failure.error = error->number;
  if (words.size() > 2) {
    std::string& nth = words[2];
    failure.lasting = nth.ends_with('+');
    if (failure.lasting) nth.pop_back();
    const auto [end, problem] = std::from_chars(nth.data(), nth.data() + nth.size(), failure.nth);
    if (problem != std::errc() || end != nth.data() + nth.size() || failure.nth < 1) {
      refuse(text, fmt::format("'{}' does not count calls from 1", words[2]));
    }
  }
  if (words.size() > 3) failure.path = words[3];
  return failure;
}

Failing::Failing(Failure failure) {
  static std::atomic<int64_t> ids{0};
  id_ = ++ids;
  const std::lock_guard lock(orders_mutex);
  orders().push_back({id_, std::move(failure)});
  ++orders_given;
}

Failing::~Failing() {
  const std::lock_guard lock(orders_mutex);
  orders().remove_if([&](const Order& order) { return order.id == id_; });
  --orders_given;
}

int64_t Failing::failed() const {
  const std::lock_guard lock(orders_mutex);
  for (const Order& order : orders()) {
    if (order.id == id_) return order.failed;
  }
  return 0;
}

}  // namespace weft::sys
