#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace weft {

struct Machine {
  std::string host;
  std::string cpu;                            // "AMD EPYC 7713 64-Core Processor"
  int cores = 0;                              // cores this process may use
  int64_t memory = 0;                         // bytes; the control group's limit if that is less
  std::vector<std::string> instruction_sets;  // found, lowest first
  std::string instruction_set;                // chosen
};
Machine this_machine();

// run.json: the origin of the files in its folder.
struct RunRecord {
  std::string run = {};  // its name, which its checkpoints carry too
  std::string version = {};
  std::string revision = {};                     // source revision
  std::string config = {};                       // resolved, as TOML
  std::map<std::string, std::string> data = {};  // file -> hash
  Machine machine = {};
  std::map<std::string, int64_t> layout = {};  // "ranks", "tensor", "data", ...
};

std::string to_json(const RunRecord& record);

// A name for a run that takes its first step with this config.
std::string new_run_name(const std::string& config);
// The name that run.json in this folder gives; empty where there is none.
std::string run_name_in(const std::string& dir);

// Replaces dir/run.json by one rename of a synced file: readers never see half of it, not even
// after a power failure. Creates `dir`.
void write_run_record(const std::string& dir, const RunRecord& record);

}  // namespace weft
