#include "core/report/console.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <mutex>
#include <utility>

#include "core/files/system_calls.h"

namespace weft::console {
namespace {

constexpr int kPatience = 10 * 1000;  // milliseconds for a reader that is slow

struct Stream {
  int file;
  std::FILE* system = nullptr;   // as the program was started with it
  std::FILE* guarded = nullptr;  // as it is used
};
Stream streams[] = {{STDOUT_FILENO}, {STDERR_FILENO}};

std::mutex lost_mutex;
Keeper::Keep keep_text;
std::string why_lost;
bool lost_before = false;

void lose(int file, std::string_view text, int error) {
  if (file != STDOUT_FILENO) return;  // nothing is left to tell it with
  const std::lock_guard lock(lost_mutex);
  const std::string why = std::strerror(error);
  if (keep_text) {
    keep_text(text, std::exchange(lost_before, true) ? "" : why);
  } else if (why_lost.empty()) {
    why_lost = why;
  }
}

// Always all of it, as far as the caller can tell.
ssize_t write_or_lose(void* cookie, const char* data, size_t size) {
  const int file = static_cast<Stream*>(cookie)->file;
  size_t done = 0;
  while (done < size) {
    const ssize_t now = sys::write(file, data + done, size - done);
    if (now > 0) {
      done += static_cast<size_t>(now);
      continue;
    }
    const int error = now == 0 ? ENOSPC : errno;
    pollfd ready{file, POLLOUT, 0};
    if (error == EAGAIN && poll(&ready, 1, kPatience) > 0) continue;
    lose(file, {data + done, size - done}, error);
    break;
  }
  return static_cast<ssize_t>(size);
}

void guard(Stream& stream, std::FILE*& standard, int buffering) {
  std::fflush(standard);
  stream.system = standard;
  stream.guarded = fopencookie(&stream, "w", {nullptr, write_or_lose, nullptr, nullptr});
  if (stream.guarded == nullptr) return;
  std::setvbuf(stream.guarded, nullptr, buffering, BUFSIZ);
  standard = stream.guarded;
}

}  // namespace

void guard() {
  guard(streams[0], stdout, isatty(STDOUT_FILENO) != 0 ? _IOLBF : _IOFBF);
  guard(streams[1], stderr, _IONBF);
}

int file_of(std::FILE* stream) {
  for (const Stream& known : streams) {
    if (stream == known.guarded && stream != nullptr) return known.file;
  }
  return fileno(stream);
}

bool is_terminal(std::FILE* stream) { return isatty(file_of(stream)) != 0; }

Keeper::Keeper(Keep keep) {
  std::fflush(stdout);
  const std::lock_guard lock(lost_mutex);
  keep_text = std::move(keep);
  lost_before = false;
}

Keeper::~Keeper() {
  std::fflush(stdout);
  const std::lock_guard lock(lost_mutex);
  keep_text = nullptr;
}

std::string failure() {
  std::fflush(stdout);
  std::cout.flush();
  const std::lock_guard lock(lost_mutex);
  if (why_lost.empty() && !std::cout) why_lost = "its text did not arrive";
  return why_lost;
}

}  // namespace weft::console
