#pragma once

#include <functional>
#include <span>
#include <string>

#include "core/config/run_config.h"
#include "parallel/checkpoint/checkpoint_saver.h"

namespace weft {

// A run's checkpoints: when they are begun, waited for, and what is told of them. All calls are
// collective.
class Saves {
 public:
  struct Voice {                                     // called on every rank
    std::function<void(const std::string&)> warn;    // what the user must know
    std::function<void(const std::string&)> record;  // what may be looked up later
    std::function<void()> alive = {};                // a save that is waited for gets on
    SaveHook at = {};                                // where faults are injected
  };
  // `others`: files that go into every checkpoint; rank 0's count.
  Saves(const Config& config, Exec& exec, HostGroup& world, Voice voice, OtherFiles others = {});

  // Before training starts: ConfigError when the disk has no room for one checkpoint; a warning
  // when it has none for all that run.keep lets stay.
  void check_room(const std::vector<SavedTensor>& tensors);

  // Status of this rank, sent in every step: whether it was asked to stop, and whether its save is
  // busy. At the step's end, with the sums over all ranks: whether any was asked. That takes no
  // call of its own, except where a save is over.
  std::vector<int64_t> status(bool asked_to_stop) const;
  bool after_step(std::span<const int64_t> sums);

  // Begins a save, after the one before it has ended. A save that fails is told, and training goes
  // on: the checkpoint before is still there, and the next save may find more room.
  void save(Manifest state, const std::vector<SavedTensor>& tensors);
  // Saves and waits. Error when it fails: this was the last chance.
  void save_now(Manifest state, const std::vector<SavedTensor>& tensors);

  // The newest checkpoint there is: that which the run resumed, or one that it saved since.
  const std::string& newest() const { return newest_; }
  void resumed(const std::string& path) { newest_ = path; }

 private:
  void note(const std::optional<SaveResult>& result);
  std::string kept() const;

  RunConfig run_;
  HostGroup& world_;
  Voice voice_;
  CheckpointSaver saver_;
  std::string newest_;
};

}  // namespace weft
