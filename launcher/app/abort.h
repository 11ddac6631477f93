#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <string_view>

// Exit codes, reports of failures, requests to stop.
namespace weft {

inline constexpr int kExitOk = 0;
inline constexpr int kExitUser = 2;      // config, arguments, data
inline constexpr int kExitFailed = 3;    // failure while running
inline constexpr int kExitStopped = 75;  // saved and stopped on request; start again to continue

// Place of a failure: a rank and its current work.
struct Station {
  int rank = 0;
  std::string coordinates = {};  // "pipe 1, data 0, sequence 1, tensor 1"; empty on one rank
  std::string doing = {};        // "forward of micro-batch 3, block 7 mixer gla"
};

// "rank 5 (pipe 1, data 0), forward of micro-batch 3, block 7:\n  what"
std::string located(const Station& station, std::string_view what);

// A config error occurs on all ranks, and mpirun kills all of them when one exits: ranks other than
// 0 wait this long for rank 0 to print the message. A rank that fails alone, is not killed (srun)
// or has a slow rank 0 prints its own message after the wait: it is never lost, and the job is
// refused within a second.
inline constexpr std::chrono::milliseconds kEverybodysMistake{700}, kOwnFailure{500};
void let_first_rank_speak(std::chrono::milliseconds patience);

// Prints the failure on stderr and returns the exit code for it.
int report_failure(std::exception_ptr failure, const Station* station = nullptr);

// SIGINT, SIGTERM and SIGUSR1 request that the run saves and stops after the current step. A second
// SIGINT ends the program at once. One object at a time; the destructor restores the previous
// handlers.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  bool requested() const;
};

}  // namespace weft
