#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

// The moments of a save between which a machine may lose power. Faults are injected and tests look
// at the disk there.
namespace weft {

enum class SaveMoment : uint8_t {
  kBegun,      // there is a folder to write into
  kWritten,    // this rank's file, not synced
  kSynced,     // this rank's file
  kIndexed,    // index.h5
  kDescribed,  // the manifest: all is there, under another name
  kReplacing,  // the one of the same step is out of the way; only where names cannot be exchanged
  kRenamed,    // all of it carries the step's name, which may not be on the disk yet
  kPublished,  // it is
  kPruning,    // one of the old ones is gone
  kCount,
};
std::string_view name_of(SaveMoment moment);

using SaveProgress = std::function<void()>;

// Called by the thread that reaches a moment; empty in a run without faults. A hook that stays for
// long calls `progress` meanwhile, which may be empty, so that the save does not look stuck.
using SaveHook = std::function<void(int64_t step, SaveMoment moment, const SaveProgress& progress)>;

inline void reach(const SaveHook& hook, int64_t step, SaveMoment moment,
                  const SaveProgress& progress = {}) {
  if (hook) hook(step, moment, progress);
}

}  // namespace weft
