#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/comm/thread_comm.h"

namespace weft {

// One lock for a world of ranks and all groups split from it, so that a failure anywhere reaches
// everybody who waits.
struct ThreadHub {
  std::mutex mutex;
  std::condition_variable changed;
  std::string failure;  // not empty: nobody may start to wait any more

  void fail(const std::string& why);  // the first reason stays
};

// What ranks of one group show each other.
//
// A collective is: publish, meet, compare, work on each other's memory, part. `meet` may throw
// (failure, timeout), and then no rank passes it. Once all have met, nobody leaves before all have
// done their work: a rank that unwound earlier would free memory the others still read.
struct ThreadGroup::State {
  struct Posting {
    std::string call;  // "all_reduce(sum, f32 [3, 4])"; equal on all ranks
    const void* from = nullptr;
    void* to = nullptr;
    std::vector<int64_t> send, recv;  // rows per rank in all_to_all_v; color and key in split
    std::shared_ptr<State> child;     // the group that the first rank of a color makes
  };
  struct Message {
    enum class Stage : uint8_t { kPosted, kTaken, kDone } stage = Stage::kPosted;
    ConstView data;
    int tag = 0;
  };
  using Queue = std::deque<Message*>;

  State(int size, ThreadGroupOptions options, std::shared_ptr<ThreadHub> hub);

  void meet(int rank);
  void part();
  const Posting& posting(int rank) const { return postings[static_cast<size_t>(rank)]; }
  // Publishes, meets and compares calls; throws on all ranks alike when two differ.
  void agree(int rank, Posting mine);

  void post(int from, int to, Message& message);
  void receive(int from, int to, View data, int tag);
  void await_done(int from, int to, Message& message);
  void withdraw(int from, int to, Message& message);  // before its memory goes away

  const int size;
  const ThreadGroupOptions options;
  const std::shared_ptr<ThreadHub> hub;
  std::vector<Posting> postings;

 private:
  using Lock = std::unique_lock<std::mutex>;
  template <class Ready>
  void wait(Lock& lock, int rank, const std::string& what, Ready ready);
  void arrive(Lock& lock);
  Queue& queue(int from, int to) { return queues[static_cast<size_t>(from * size + to)]; }
  std::string whereabouts() const;

  // Under the hub's lock.
  int arrived = 0;
  uint64_t meetings = 0;
  std::vector<std::string> waiting;  // by rank: what it waits in; empty: not waiting
  std::vector<Queue> queues;         // [from, to]
};

}  // namespace weft
