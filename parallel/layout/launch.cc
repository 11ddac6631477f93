#include "parallel/layout/launch.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace weft {
namespace {

std::optional<int> number(const char* text) {
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end != '\0' || value < 0 || value > 1 << 24) return std::nullopt;
  return static_cast<int>(value);
}

// Of "4(x2),3", Slurm's list of tasks by node, those of node `node`.
std::optional<int> tasks_on(const char* list, int node) {
  for (const char* at = list; at != nullptr && *at != '\0';) {
    int tasks = 0, nodes = 1, length = 0;
    if (std::sscanf(at, "%8d%n", &tasks, &length) != 1 || tasks < 1) break;
    at += length;
    length = 0;
    if (std::sscanf(at, "(x%8d)%n", &nodes, &length) == 1) at += length;
    if (node < nodes) return tasks;
    node -= nodes;
    if (*at++ != ',') break;
  }
  return std::nullopt;
}

bool meet(const CoreMask& a, const CoreMask& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if ((a[i] & b[i]) != 0) return true;
  }
  return false;
}

}  // namespace

Launch launch_of(const std::function<const char*(const char*)>& environment) {
  const auto read = [&](const char* name) { return number(environment(name)); };
  if (const auto size = read("OMPI_COMM_WORLD_SIZE")) {
    return {read("OMPI_COMM_WORLD_RANK").value_or(0), *size,
            read("OMPI_COMM_WORLD_LOCAL_RANK").value_or(0),
            read("OMPI_COMM_WORLD_LOCAL_SIZE").value_or(1)};
  }
  // Slurm sets its own also in a plain shell inside an allocation; PMIX_RANK only for srun's
  // processes.
  const auto rank = read("PMIX_RANK");
  const auto size = read("SLURM_NTASKS");
  if (!rank || !size) return {};
  // SLURM_NTASKS_PER_NODE is there only where somebody asked for it, and not always kept to.
  const auto here =
      tasks_on(environment("SLURM_STEP_TASKS_PER_NODE"), read("SLURM_NODEID").value_or(0));
  return {*rank, *size, read("SLURM_LOCALID").value_or(0),
          std::max(1, here.value_or(read("SLURM_NTASKS_PER_NODE").value_or(1)))};
}

Launch this_launch() {
  return launch_of([](const char* name) { return std::getenv(name); });
}

CoreMask this_core_mask() {
  constexpr size_t kWords = CPU_SETSIZE / 64;
  CoreMask mask(kWords);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) mask[core / 64] |= uint64_t{1} << (core % 64);
  }
  return mask;
}

CoreMask part_of(const CoreMask& mask, int index, int parts) {
  int cores = 0;
  for (const uint64_t word : mask) cores += std::popcount(word);
  if (cores < parts) return mask;
  CoreMask part(mask.size());
  int before = 0;  // cores of the mask
  for (size_t core = 0; core < mask.size() * 64; ++core) {
    const uint64_t bit = uint64_t{1} << (core % 64);
    if ((mask[core / 64] & bit) == 0) continue;
    if (before >= cores * index / parts && before < cores * (index + 1) / parts) {
      part[core / 64] |= bit;
    }
    ++before;
  }
  return part;
}

void pin_to_own_cores(const Launch& launch) {
  if (std::getenv("WEFT_PIN") == nullptr || launch.local_size == 1) return;
  const CoreMask mine = part_of(this_core_mask(), launch.local_rank, launch.local_size);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if ((mine[core / 64] >> (core % 64) & 1) != 0) CPU_SET(core, &set);
  }
  sched_setaffinity(0, sizeof set, &set);  // where it is not allowed, cores stay shared
}

int threads_for(const std::vector<CoreMask>& masks, size_t index) {
  int cores = 0, sharers = 0;
  for (const uint64_t word : masks[index]) cores += std::popcount(word);
  for (const CoreMask& other : masks) sharers += meet(other, masks[index]) ? 1 : 0;
  return std::max(1, cores / std::max(1, sharers));
}

}  // namespace weft
