#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>

#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/save_moment.h"

namespace weft {

// What became of a save; the same on all ranks.
struct SaveResult {
  int64_t step = 0;
  std::string path;       // the published checkpoint
  std::string failure;    // why there is none; what was published before is still there
  std::string left = {};  // on rank 0: why an older one could not be removed
};

// Saves checkpoints together with the other ranks, while training goes on.
//
//   begin     copies what this rank answers for (the one stall); a thread writes the file
//   busy      whether this rank's thread works: summed in a reduction that steps make anyway
//   advance   with the number of busy ranks, at the same step on all ranks: when all files are on
//             the disk, a thread of rank 0 publishes; when that is done, there is a result
//   finish    waits for the end instead
//
// In the foreground there is no copy: finish must follow begin before the tensors change.
class CheckpointSaver {
 public:
  enum class Where : uint8_t { kForeground, kBackground };
  struct Options {
    std::string folder;
    int64_t keep = 0;  // checkpoints that stay; 0: all
    Where where = Where::kForeground;
    OtherFiles others = {};  // rank 0's go into every checkpoint
    // Called now and then by the thread that waits for a save, while that gets on.
    std::function<void()> alive = {};
    SaveHook at = {};  // called by the thread that writes or publishes
  };
  CheckpointSaver(Exec& exec, HostGroup& world, Options options);
  ~CheckpointSaver();  // waits for this rank's thread

  bool idle() const { return phase_ == Phase::kIdle; }

  // Collective; only when idle. A result when it cannot even begin (no room on the disk).
  std::optional<SaveResult> begin(Manifest state, const std::vector<SavedTensor>& tensors);
  bool busy() const;
  std::optional<SaveResult> advance(int64_t busy_ranks);
  std::optional<SaveResult> finish();  // collective

 private:
  enum class Phase : uint8_t { kIdle, kWriting, kPublishing };
  void start(std::function<void()> job);
  void wait_for_job();
  std::string failure_of_job();
  void take_copy(const std::vector<SavedTensor>& tensors);

  Exec& exec_;
  HostGroup& world_;
  Options options_;
  Phase phase_ = Phase::kIdle;
  Manifest state_;                     // of the save under way
  std::string left_;                   // of the publication
  std::vector<SavedTensor> tensors_;   // what it writes
  Arena copy_;                         // the memory behind them; kept for the next save
  std::atomic<int64_t> progress_ = 0;  // grows while the job gets on
  std::future<void> job_;
};

}  // namespace weft
