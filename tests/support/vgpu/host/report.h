#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace vgpu {

// Counts of the work this process did on virtual GPUs, written to VGPU_REPORT when it ends.
// Processes of one run add up in one file.
struct Report {
  std::map<std::string, uint64_t> launches, threads_of;  // by kernel
  std::set<std::string> kernels;                         // of the twins
  uint64_t threads = 0, devices = 0;                     // the latter: that the process used
  uint64_t host_to_device = 0, device_to_host = 0, device_to_device = 0, set = 0;  // bytes
  std::map<std::string, uint64_t> host_waits;                                      // by call
  uint64_t allocations = 0, peak_bytes = 0;
  uint64_t products = 0, product_flops = 0;
  std::map<uint32_t, std::string> groups;  // names of communicators by number
  struct Collective {
    uint64_t calls = 0, bytes = 0;
  };
  std::map<std::pair<std::string, std::string>, Collective> collectives;  // by group, operation

  // Adds to the file's numbers if they are of the same run, else starts a new file.
  void write(const std::string& path, const std::string& run) const;
};

}  // namespace vgpu
