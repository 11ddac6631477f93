#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace weft {

struct Machine {
  std::string host;
  std::string cpu;     // "AMD EPYC 7713 64-Core Processor"
  int cores = 0;       // this process may use
  int64_t memory = 0;  // bytes of the machine, or of the control group where that is less
  std::vector<std::string> instruction_sets;  // found, lowest first
  std::string instruction_set;                // chosen
};
Machine this_machine();

// run.json: what produced the files beside it.
struct RunRecord {
  std::string version;
  std::string revision;                     // of the code
  std::string config;                       // resolved, as TOML
  std::map<std::string, std::string> data;  // file -> hash
  Machine machine;
  std::map<std::string, int64_t> layout;  // "ranks", "tensor", "data", ...
};

std::string to_json(const RunRecord& record);

// Replaces dir/run.json by one rename of a synced file: a reader never sees half of it, and neither
// does who comes after a power failure. Makes `dir`.
void write_run_record(const std::string& dir, const RunRecord& record);

}  // namespace weft
