#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tests/support/vgpu/host/api.h"

// The end of a process that used virtual GPUs.
namespace vgpu {
namespace {

constexpr int kMistakeCode = 86;
constexpr int kDrainSeconds = 20;

constinit bool runtime_exists = false;
constinit int exit_status = 0;

void keep_status(int status, void*) { exit_status = status; }

// Runs when this library is unloaded, after the destructors of its users.
[[gnu::destructor]] void at_unload() {
  if (runtime_exists) Runtime::get().finish(exit_status);
}

}  // namespace

void note_runtime() {
  runtime_exists = true;
  on_exit(keep_status, nullptr);  // not earlier: what is registered first is called last
}

// Waits for enqueued commands, so that mistakes in them are found.
void Runtime::drain() {
  Lock lock(mutex);
  int looks = kDrainSeconds * 100;
  for (int d = 0; d < options.devices; ++d) {
    for (const Mark& mark : streams.marks_of_device(d)) {
      while (started(d) && !is_done(mark) && sticky(d) == cudaSuccess && looks-- > 0) {
        lock.unlock();
        usleep(10'000);
        lock.lock();
      }
    }
  }
}

void Runtime::find_leaks() {
  std::string text;
  for (int range = 0; range < kRanges; ++range) {
    if (heaps_[static_cast<size_t>(range)] == nullptr) continue;
    for (const auto& [at, a] : heap(range).live()) {
      const bool going = std::any_of(releasing_.begin(), releasing_.end(),
                                     [&](const Releasing& r) { return r.at == a.at; });
      if (at != staging_ && !going)
        text += fmt::format("\n  {} bytes, allocation {} ({})", a.bytes, a.number, a.by);
    }
  }
  if (streams.made_by_program() > 0)
    text += fmt::format("\n  {} streams", streams.made_by_program());
  if (streams.events() > 0) text += fmt::format("\n  {} events", streams.events());
  if (!text.empty()) note_mistake("not freed at the end of the process:" + text);
}

void Runtime::finish(int status) {
  if (getpid() != owner_) return;  // a fork that exits
  if (status == 0) drain();
  for (int d = 0; d < options.devices; ++d) sticky(d);  // notices what failed last
  const bool broken = std::any_of(failures_.begin(), failures_.end(),
                                  [](const Failure& f) { return f.code != cudaSuccess; });
  if (status == 0 && !broken) find_leaks();
  for (int range = 0; range < kMaxDevices; ++range) {
    if (started(range)) report.peak_bytes = std::max(report.peak_bytes, heap(range).peak());
  }
  if (!options.report.empty()) report.write(options.report, options.run);
  for (int d = 0; d < kMaxDevices; ++d)
    mistakes_ += static_cast<int>(board().devices[d].noted.load());
  if (mistakes_ == 0) return;
  std::fprintf(stderr, "vgpu: the program ends with %d because of the above\n", kMistakeCode);
  std::fflush(nullptr);
  _exit(kMistakeCode);
}

}  // namespace vgpu
