#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vgpu {

// Limits of a GPU by compute capability.
struct Architecture {
  int number;  // 90: compute capability 9.0
  const char* name;
  int multiprocessors;
  int shared_per_block;  // with cudaFuncAttributeMaxDynamicSharedMemorySize
  int shared_per_multiprocessor;
  int threads_per_multiprocessor;
  int l2_bytes;

  int major() const { return number / 10; }
  int minor() const { return number % 10; }
};
const Architecture* find_architecture(int number);

// The variables VGPU_..., see README.md.
struct Options {
  static Options from_environment();

  int devices;
  const Architecture* architecture;
  uint64_t memory_bytes;
  uint32_t order;
  bool check;
  std::string fault, report, resources, run;
  int64_t longest_delay_us;
  int driver_version;
  std::vector<std::string> twins;
  std::string device_program;
};

// Ends the process: the environment is wrong.
[[noreturn]] void refuse(const std::string& text);

}  // namespace vgpu
