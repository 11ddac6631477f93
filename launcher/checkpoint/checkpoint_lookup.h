#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/checkpoint_folder.h"

namespace weft {

// Where a run keeps its checkpoints.
inline std::string checkpoint_folder(const std::string& run_dir) {
  return run_dir + "/" + kCheckpoints;
}

// The checkpoint a path means, by its manifest: a checkpoint itself, a run's folder or a folder of
// checkpoints (then the newest whose manifest is whole). ConfigError when there is none.
FoundCheckpoint open_checkpoint(const std::string& path);
// Gives it to `use`, by all ranks together. Damage that it meets in a folder's newest one is told,
// and the one before is tried. Returns the one that was used.
FoundCheckpoint use_checkpoint(HostGroup& world, const std::string& path, const UseCheckpoint& use);
FoundCheckpoint use_checkpoint(const std::string& path, const UseCheckpoint& use);
// Says on standard error which step of which run a command works with.
void say_taken(const FoundCheckpoint& found);
// All that a path means, oldest first, whole or not.
std::vector<std::string> list_checkpoints(const std::string& path);

// Holds a run's folder for this process, so that two runs cannot write into one. ConfigError when
// it is taken.
class RunLock {
 public:
  explicit RunLock(const std::string& run_dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace weft
