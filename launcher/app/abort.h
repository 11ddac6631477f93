#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <string_view>

// How the program ends.
namespace weft {

inline constexpr int kExitOk = 0;
inline constexpr int kExitUser = 2;      // config, arguments, data
inline constexpr int kExitFailed = 3;    // while running
inline constexpr int kExitStopped = 75;  // on request, after saving; start again to go on

// Where a rank was when something failed.
struct Station {
  int rank = 0;
  std::string coordinates = {};  // "pipe 1, data 0, sequence 1, tensor 1"; empty on one rank
  std::string doing = {};        // "forward of micro-batch 3, block 7 mixer gla"
};

// "rank 5 (pipe 1, data 0), forward of micro-batch 3, block 7:\n  what"
std::string located(const Station& station, std::string_view what);

// A mistake in a config meets all ranks alike, and mpirun ends them all when the first one exits:
// the others wait for the first to tell it. A rank that fails alone, or that nobody ends (srun), or
// whose first rank is slow, speaks when that time is over: the message is never lost, and the job
// is refused within a second.
inline constexpr std::chrono::milliseconds kEverybodysMistake{700}, kOwnFailure{500};
void let_first_rank_speak(std::chrono::milliseconds patience);

// Says what failed on stderr and returns the exit code for it.
int report_failure(std::exception_ptr failure, const Station* station = nullptr);

// SIGINT, SIGTERM and SIGUSR1 ask the run to save and stop at the border of a step. A second SIGINT
// ends the program at once. One object at a time; its end restores what was there before.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  bool requested() const;
};

}  // namespace weft
