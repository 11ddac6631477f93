#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "tests/support/vgpu/nccl/exchange.h"

// A file shared by the processes of one communicator. The head lists members and their state; data
// in transit follows, at separate offsets for every member and pair.
namespace vgpu {

inline constexpr int kMaxRanks = 64;
inline constexpr uint64_t kMaxMessage = uint64_t{1} << 30;  // bytes of one call, per member

// One call as a member made it, to be compared across members.
struct Signature {
  ExchangeCall call;
  uint32_t stream, command;
};

struct Member {
  char host[64];
  int32_t device, process;        // of the host's process
  char doorbell[160];             // a FIFO that its device process reads
  std::atomic<uint32_t> here;     // the fields above are set
  std::atomic<uint32_t> listens;  // its device process has opened the doorbell
  // Collectives of this communicator that it has begun, and finished.
  std::atomic<uint32_t> begun, finished;
  Signature signature;  // of the newest one begun
  // The group that its device is executing, in any communicator, so that deadlocks can be named:
  // the communicator (0: none), number of its collective (0: none), a bit for each rank there that
  // it sends to or receives from.
  std::atomic<uint64_t> doing_in, sends_to, receives_from;
  std::atomic<uint32_t> doing_number;
  char doing[400];
  std::atomic<int32_t> error;  // ncclResult_t, asynchronous
  // Number of splits it has called, and the arguments of the newest.
  std::atomic<uint32_t> splits;
  int32_t color, key;
};

// Messages of one member to another, one after the other.
struct Channel {
  std::atomic<uint32_t> sent, received, refused;
  Signature of_sender, of_receiver;
};

struct CommunicatorHead {
  std::atomic<uint64_t> id;
  std::atomic<uint32_t> size, left;
  Member members[kMaxRanks];
  Channel channels[kMaxRanks][kMaxRanks];  // from, to
};

class SharedCommunicator {
 public:
  // Opens it, or makes it if this is the first to come.
  explicit SharedCommunicator(const std::string& path);
  ~SharedCommunicator();
  SharedCommunicator(const SharedCommunicator&) = delete;
  SharedCommunicator& operator=(const SharedCommunicator&) = delete;

  CommunicatorHead& head() const { return *head_; }
  Member& member(int rank) const { return head_->members[rank]; }
  int size() const { return static_cast<int>(head_->size.load()); }
  const std::string& path() const { return path_; }
  bool complete(int size) const;  // all ranks are members

  // Bytes of a member, or on the way from one to another.
  void put(int rank, const void* from, uint64_t bytes, uint64_t at = 0) const;
  void get(int rank, void* to, uint64_t bytes, uint64_t at = 0) const;
  void put_message(int from, int to, const void* data, uint64_t bytes) const;
  void get_message(int from, int to, void* data, uint64_t bytes) const;

 private:
  std::string path_;
  int file_ = -1;
  CommunicatorHead* head_ = nullptr;
};

// Folder of communicators and doorbells: that of the run, or /dev/shm.
std::string meeting_place();
std::string doorbell_path(pid_t host_process, int device);

}  // namespace vgpu
