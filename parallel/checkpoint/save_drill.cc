#include "parallel/checkpoint/save_drill.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "core/base/error.h"

namespace weft {

std::string_view name_of(SaveMoment moment) {
  static constexpr std::array<std::string_view, static_cast<size_t>(SaveMoment::kCount)> kNames = {
      "begun",     "written", "synced",    "indexed", "described",
      "replacing", "renamed", "published", "pruning"};
  return kNames[static_cast<size_t>(moment)];
}

void dawdle(const std::function<void()>& progress) {
  const char* const until = std::getenv("WEFT_FAIL_UNTIL");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  const auto waits = [&] {
    if (until == nullptr) return std::chrono::steady_clock::now() < end;
    const std::filesystem::path file = until;  // whose folder vanishes with the test that made it
    return !std::filesystem::exists(file) && std::filesystem::exists(file.parent_path());
  };
  while (waits()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (progress) progress();
  }
}

void save_drill(int rank, int64_t step, SaveMoment moment, const std::function<void()>& progress) {
  const char* at = std::getenv("WEFT_FAIL_AT");
  if (at == nullptr) return;
  const std::string here = fmt::format("{}:{}:{}", rank, step, name_of(moment));
  if (here == at) std::raise(SIGKILL);
  if (here + ":fails" == at) throw Error("a drill: WEFT_FAIL_AT={}", at);
  if (here + ":slow" == at) dawdle(progress);
}

}  // namespace weft
