#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace weft {

struct ThreadGroupOptions {
  std::string name = "world";
  std::chrono::milliseconds timeout{60'000};  // for a rank that waits for the others
};

class ThreadComm;

// N ranks as threads of this process. Every rank's thread takes its own communicator.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size, ThreadGroupOptions options = {});
  std::unique_ptr<ThreadComm> communicator(int rank) const;

  // Releases every rank that waits in this group or in one split from it, now and later, with an
  // Error that says why.
  void fail(const std::string& why) const;

 private:
  friend class ThreadComm;
  struct State;
  explicit ThreadGroup(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Ranks meet, compare what each of them calls, and copy out of each other's memory. Whoever
// disagrees with the others in operation, type or shape makes all of them throw, with both calls in
// the message. bf16 sums are carried in f32 and rounded once.
class ThreadComm final : public Communicator {
 public:
  ~ThreadComm() override;
  int rank() const override { return rank_; }
  int size() const override;
  std::string_view name() const override { return name_; }

  void all_reduce(Exec& exec, View inout, ReduceOp op) override;
  void all_gather(Exec& exec, ConstView mine, View all) override;
  void reduce_scatter(Exec& exec, ConstView all, View mine) override;
  void all_to_all_v(Exec& exec, ConstView send, std::span<const int64_t> send_rows, View recv,
                    std::span<const int64_t> recv_rows) override;
  void transfer(Exec& exec, std::span<const Transfer> together) override;
  std::unique_ptr<Pending> start(Exec& exec, std::span<const Transfer> together) override;
  HostGroup& hosts() override { return *hosts_; }

  // Called by all ranks: those of equal `color` form a group of their own, ordered by `key` and
  // then by rank. Null for a negative color.
  std::unique_ptr<ThreadComm> split(int color, int key, const std::string& axis);

 private:
  friend class ThreadGroup;
  class Exchange;
  class Hosts;
  ThreadComm(std::shared_ptr<ThreadGroup::State> state, int rank);
  template <class Call>
  void guarded(Call&& call);
  void check_row_counts();

  std::shared_ptr<ThreadGroup::State> state_;
  int rank_;
  std::string name_;
  std::unique_ptr<HostGroup> hosts_;
};

// Runs rank(comm, exec) on `size` threads, each with a communicator, one compute thread and memory
// of its own (tensors must not leave). When ranks throw, the others are released and the first
// exception is thrown here.
void run_ranks(int size, const std::function<void(ThreadComm& comm, Exec& exec)>& rank,
               ThreadGroupOptions options = {});

}  // namespace weft
