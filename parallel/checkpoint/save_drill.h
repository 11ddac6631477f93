#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

// The moments of a save between which a machine may lose power, and drills that stop there:
// WEFT_FAIL_AT=RANK:STEP:MOMENT ends the process without a word, RANK:STEP:MOMENT:fails throws an
// Error, RANK:STEP:written:slow writes on slowly, as `dawdle` does.
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
void save_drill(int rank, int64_t step, SaveMoment moment,
                const std::function<void()>& progress = {});
// Calls `progress` again and again until the file that WEFT_FAIL_UNTIL names is there (or its
// folder no longer is), or for five seconds when it names none.
void dawdle(const std::function<void()>& progress);

}  // namespace weft
