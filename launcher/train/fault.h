#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "parallel/checkpoint/save_moment.h"

namespace weft {

// One fault that a run injects into itself, to show what becomes of the other ranks and of the
// files (`weft train --fault SPEC`):
//
//   RANK:STEP             throws before the step
//   RANK:STEP:killed      ends the process without a word (SIGKILL)
//   RANK:STEP:stopped     halts the process (SIGSTOP)
//   RANK:STEP:hang        never returns
//   RANK:STEP:slow=FILE   waits until FILE exists, or its folder no longer does
//   RANK:STEP:asked       waits until the run was asked to stop
//   RANK:STEP:call=CALL:ERROR[:N[+]][:PATH]   from then on the N-th such system call on a path that
//                         contains PATH fails (core/files/system_calls.h), with + all later ones
//   RANK:STEP:forward:LAYER, RANK:STEP:backward:LAYER   throws inside the step
//   RANK:STEP:MOMENT      ends the process at that moment of the step's save (save_moment.h)
//   RANK:STEP:MOMENT:fails, RANK:STEP:MOMENT:slow=FILE  throws or waits there
class Fault {
 public:
  Fault() = default;                        // none
  explicit Fault(const std::string& spec);  // ConfigError; "" is none

  void before_step(int rank, int64_t step, const std::function<bool()>& asked_to_stop) const;
  void in_layer(int rank, int64_t step, std::string_view phase, int64_t layer) const;
  void in_save(int rank, int64_t step, SaveMoment moment, const SaveProgress& progress) const;

 private:
  struct CallsThatFail;
  enum class Effect : uint8_t { kNone, kThrow, kKill, kStop, kHang, kSlow, kUntilAsked, kFailCall };
  void read_effect(std::string_view word);
  bool happens(int rank, int64_t step, std::string_view where) const;
  void strike(const std::function<void()>& progress) const;
  [[noreturn]] void refuse() const;

  std::string spec_;
  int rank_ = 0;
  int64_t step_ = 0;
  std::string where_;  // "" before the step, "forward:3", "written"
  std::string until_;  // the file that ends kSlow
  Effect effect_ = Effect::kNone;
  std::string call_;                        // that fails
  std::shared_ptr<CallsThatFail> failing_;  // from its step on
};

}  // namespace weft
