#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// A rank's sign of life: who it is, and what it was in when it wrote this. A small text file in the
// run's folder, one "key value" per line, written over again and again.
struct Heartbeat {
  int rank = 0;
  int64_t beat = 0;         // grows with each; one that stands still is a rank that does
  std::string coordinates;  // "pipe 0, data 1, sequence 0, tensor 0"
  std::string host;
  std::string addresses = {};  // where its node answers (parallel/watchdog/node_port.h)
  int64_t pid = 0;
  std::string place;   // "step 3, backward of layer 7"
  std::string call;    // "all_reduce over data"; empty: computes
  double seconds = 0;  // since it entered or left a call
  std::string stack;   // of the thread that trains, once it has stayed for a while
};

std::string heartbeat_path(const std::string& folder, int rank);
std::string this_host();

// Removes files that ranks of a job that was killed left in the folder. How many.
int remove_heartbeats(const std::string& folder);

// Nothing where there is no file, or only half of one.
std::optional<Heartbeat> read_heartbeat(const std::string& folder, int rank);

// The file of one rank, removed at the end. A folder that cannot be written is no reason to stop:
// the file is then not there.
class HeartbeatFile {
 public:
  HeartbeatFile(const std::string& folder, int rank);
  ~HeartbeatFile();
  HeartbeatFile(const HeartbeatFile&) = delete;
  HeartbeatFile& operator=(const HeartbeatFile&) = delete;

  void write(const Heartbeat& heartbeat) const;

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace weft
