#include "parallel/watchdog/stack_of.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

namespace weft {
namespace {

// What a signal handler may touch. It answers once, and only if it is the one asked.
std::array<void*, 48> frames;
std::atomic<pthread_t> asked{};
std::atomic<int> depth{-1};

void on_signal(int) {
  if (depth.load() != 0 || pthread_equal(asked.load(), pthread_self()) == 0) return;
  const int saved = errno;
  depth.store(backtrace(frames.data(), static_cast<int>(frames.size())));
  errno = saved;
}

void install() {
  backtrace(frames.data(), 1);  // loads what it needs: not from inside a handler
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGURG, &action, nullptr);
}

// "weft::Optimizer::step(weft::Exec&) const" -> "Optimizer::step"; empty for functions of others.
std::string function_name(std::string_view full) {
  const size_t start = full.find("weft::");
  if (start == std::string_view::npos) return {};
  const size_t before = full.find_first_of("(<");
  if (before < start) return {};  // std::function<... weft::Exec ...>
  std::string name;
  int nested = 0;
  for (const char c : full.substr(start + 6)) {
    if (c == '(' && nested == 0) break;
    if (c == '<') ++nested;
    if (nested == 0) name += c;
    if (c == '>') --nested;
  }
  return name;
}

bool machinery(std::string_view name) {
  for (const std::string_view part : {"TracedComm", "MpiComm", "HostGroup", "ThreadPool"}) {
    if (name.starts_with(part)) return true;
  }
  return false;
}

std::string name_at(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_sname == nullptr) return {};
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), &std::free);
  return status == 0 ? function_name(text.get()) : std::string();
}

}  // namespace

std::string stack_of(pthread_t thread) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  static const bool installed = (install(), true);
  static_cast<void>(installed);
  asked.store(thread);
  depth.store(0);
  if (pthread_kill(thread, SIGURG) != 0) return {};
  for (int i = 0; i < 200 && depth.load() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const int count = depth.exchange(-1);
  std::string text, last;
  for (int i = 0, shown = 0; i < count && shown < 6; ++i) {
    const std::string name = name_at(frames[static_cast<size_t>(i)]);
    if (name.empty() || machinery(name) || name == last) continue;
    text += (text.empty() ? "" : " < ") + name;
    last = name;
    ++shown;
  }
  return text;
}

}  // namespace weft
