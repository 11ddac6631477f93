#pragma once

#include <pthread.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/watchdog/activity.h"
#include "parallel/watchdog/heartbeat.h"
#include "parallel/watchdog/node_port.h"

namespace weft {

struct WatchdogOptions {
  std::string folder;  // of the heartbeats of all ranks
  double slow = 10;    // seconds in one call, then the ranks it waits for are named; 0: never
  double limit = 600;  // seconds in which no rank gets on, then the job is ended; 0: never
};

// What one rank knows of another by reading its file now and then.
struct RankSight {
  int rank = 0;
  bool seen = false;  // has left a file
  Heartbeat last = {};
  double silent = 0;  // seconds that its beat has not grown, by the reader's clock
};

// Whether a rank that the others may wait for has moved within `seconds`: writing a large
// checkpoint to a slow disk takes long, and block by block it gets on.
bool somebody_gets_on(const std::vector<RankSight>& sights, double seconds);

// Nodes of these ranks, other than that of rank `me`, that the network does not reach.
std::vector<std::string> nodes_out_of_reach(int me, const std::vector<RankSight>& sights);

// Who waits where and for whom, for people. `sights`: all ranks, by rank; `me` is one that waits.
std::string waiting_report(int me, const std::vector<RankSight>& sights, double silent_after,
                           const std::vector<std::string>& out_of_reach = {});

// Watches the thread that made it. A thread of its own writes this rank's heartbeat, and, when the
// rank has waited long in one call, reads those of the others, says which rank is missing or slow
// (from one rank, the first that waits), and in the end gives up. It makes no MPI call.
class Watchdog {
 public:
  struct Rank {
    int rank, ranks;
    std::string coordinates;
  };
  Watchdog(const WatchdogOptions& options, const Rank& rank, const Activity& activity,
           std::function<void(const std::string&)> say, std::function<void()> give_up);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  struct Sight {
    RankSight known;
    Clock::time_point changed;
  };
  void run();
  void beat();
  void look();
  void judge(const Activity::Now& now);
  bool speaks() const;

  const WatchdogOptions options_;
  const Rank rank_;
  const Activity& activity_;
  const std::function<void(const std::string&)> say_;
  const std::function<void()> give_up_;
  const pthread_t watched_ = pthread_self();
  const std::chrono::duration<double> interval_;
  const NodePort port_of_node_;
  HeartbeatFile file_;
  Heartbeat mine_;
  std::vector<Sight> sights_;
  int64_t said_calls_ = -1;  // the call that was last spoken of
  double say_at_ = 0;        // seconds in that call, for the next time
  bool yields_ = false;      // another rank was to end the job
  double over_at_ = 0;       // seconds in that call, when it was
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace weft
