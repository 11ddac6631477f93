#include "launcher/train/drill.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "core/base/error.h"
#include "parallel/checkpoint/save_drill.h"

namespace weft {

void fire_drill(int rank, int64_t step, const std::function<bool()>& asked) {
  const char* const at = std::getenv("WEFT_FAIL_AT");
  if (at == nullptr) return;
  const std::string text = at, here = fmt::format("{}:{}", rank, step);
  if (text == here) throw Error("a drill: WEFT_FAIL_AT={}", text);
  if (text == here + ":killed") std::raise(SIGKILL);
  if (text == here + ":stopped") std::raise(SIGSTOP);
  if (text == here + ":slow") dawdle([] {});
  while (text == here + ":asked" && !asked())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  while (text == here + ":hang") std::this_thread::sleep_for(std::chrono::seconds(1));
}

void fire_drill(int rank, int64_t step, const char* phase, int64_t layer) {
  const char* const at = std::getenv("WEFT_FAIL_AT");
  if (at == nullptr || fmt::format("{}:{}:{}:{}", rank, step, phase, layer) != at) return;
  throw Error("a drill: WEFT_FAIL_AT={}", at);
}

}  // namespace weft
