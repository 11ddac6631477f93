#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/config/run_config.h"
#include "core/memory/ledger.h"
#include "parallel/checkpoint/checkpoint.h"

namespace weft {

// What this rank will need, by kind, before its first step. Memory that the system has promised is
// not there yet: it is taken when it is first written to, and a process that finds none then is
// ended without a word. So what was promised is compared with what there is.
struct MemoryNeed {
  int64_t state = 0;        // weights, master weights, gradients, moments: exactly
  int64_t copy = 0;         // for saving in the background
  int64_t activations = 0;  // of one micro-batch: at least
  int64_t total() const { return state + copy + activations; }
};
// `saved`: what this rank writes into a checkpoint.
MemoryNeed memory_need(const Config& config, const Ledger& ledger,
                       const std::vector<SavedTensor>& saved, const Coordinates& here);

// Bytes that this machine can still give, by /proc/meminfo and the limits of its control groups;
// nothing where neither tells. `read` gives a file's text, empty when there is none.
std::optional<int64_t> available_memory(const std::function<std::string(const std::string&)>& read);
std::optional<int64_t> available_memory();

// ConfigError with the sizes when `ranks` such ranks do not fit into `available` bytes.
void check_memory(const MemoryNeed& need, int ranks, std::optional<int64_t> available);

}  // namespace weft
