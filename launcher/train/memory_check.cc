#include "launcher/train/memory_check.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "launcher/app/progress.h"

namespace weft {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<int64_t> number_in(const std::string& text) {
  int64_t value = 0;
  std::istringstream in(text);
  return in >> value ? std::optional(value) : std::nullopt;  // "max" is no number
}

}  // namespace

MemoryNeed memory_need(const Config& config, const Ledger& ledger,
                       const std::vector<SavedTensor>& saved, const Coordinates& here) {
  MemoryNeed need;
  for (const Label label :
       {Label::kParameters, Label::kMaster, Label::kGradients, Label::kMoments}) {
    need.state += ledger.of(label).live;
  }
  for (const SavedTensor& t : saved) need.copy += config.run.background_save ? t.local.bytes() : 0;
  // Every block keeps at least its input, and unless it recomputes, what its mixer and its
  // feed-forward read and write. That is less than any mixer really keeps.
  const int64_t kept = config.train.recompute == "full" ? 1 : 4;
  const int64_t element = config.train.precision == "bf16" ? 2 : 4;
  const int64_t tokens = config.train.micro_batch * config.train.sequence /
                         (here[Axis::kSequence].size * here[Axis::kTensor].size);
  const int64_t layers = config.model.layers / here[Axis::kPipe].size;
  need.activations = tokens * config.model.hidden * layers * kept * element;
  return need;
}

std::optional<int64_t> available_memory(
    const std::function<std::string(const std::string&)>& read) {
  std::optional<int64_t> least;
  const auto limit = [&](int64_t bytes) { least = std::min(least.value_or(bytes), bytes); };
  const std::string info = read("/proc/meminfo"), key = "MemAvailable:";
  if (const size_t at = info.find(key); at != std::string::npos) {
    if (const auto kib = number_in(info.substr(at + key.size()))) limit(*kib * 1024);
  }
  const auto group = [&](const char* most, const char* used) {
    const auto allowed = number_in(read(most)), taken = number_in(read(used));
    if (allowed && taken) limit(std::max<int64_t>(0, *allowed - *taken));
  };
  group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
  group("/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes");
  return least;
}

std::optional<int64_t> available_memory() { return available_memory(text_of); }

void check_memory(const MemoryNeed& need, int ranks, std::optional<int64_t> available) {
  if (!available || need.total() * ranks <= *available) return;
  const std::string each = ranks == 1 ? "" : fmt::format("each of {} ranks here ", ranks);
  throw ConfigError(
      "out of memory before it starts: {}needs at least {} (weights, gradients and moments {}, "
      "{}activations of a micro-batch {} or more), this machine has {} left; more ranks on more "
      "machines, a smaller model, train.micro_batch or train.sequence need less{}",
      each, format_bytes(need.total()), format_bytes(need.state),
      need.copy > 0 ? fmt::format("the copy that is saved {}, ", format_bytes(need.copy)) : "",
      format_bytes(need.activations), format_bytes(*available),
      need.copy > 0 ? ", and run.background_save=false" : "");
}

}  // namespace weft
