#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace weft {

struct MpiOptions {
  int64_t largest_message = int64_t{1}
                            << 30;   // bytes; longer ones travel in pieces (MPI counts in int)
  int64_t block = int64_t{8} << 20;  // bytes of a reduction at a time: bounds its scratch memory
};

// How a sum over the ranks is formed. `weft bench comm` measures them against each other.
enum class SumWay : uint8_t {
  kOneExchange,   // everything to everybody, and each adds up all of it
  kTwoExchanges,  // each adds up its share, and sends the sum to the others
  kLibrary,       // MPI's own, in an order of its choice
};

// A group of MPI processes. Sums do not use MPI's own reductions: the parts travel to the rank that
// adds them, in rank order and with the arithmetic of the other communicators. So they are the same
// bits as `ThreadComm`'s, run after run. Pending messages of a rank that ended are an Error here,
// or MPI ends the job.
class MpiComm final : public Communicator {
 public:
  // All processes of this job. MPI must be running (parallel/comm/world.h) and outlive it.
  static std::unique_ptr<MpiComm> world(const MpiOptions& options = {});
  ~MpiComm() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return name_; }

  void all_reduce(Exec& exec, View inout, ReduceOp op) override;
  void all_gather(Exec& exec, ConstView mine, View all) override;
  void reduce_scatter(Exec& exec, ConstView all, View mine) override;
  void all_to_all_v(Exec& exec, ConstView send, std::span<const int64_t> send_rows, View recv,
                    std::span<const int64_t> recv_rows) override;
  void transfer(Exec& exec, std::span<const Transfer> together) override;
  std::unique_ptr<Pending> start(Exec& exec, std::span<const Transfer> together) override;
  HostGroup& hosts() override { return *hosts_; }

  // By a way of the caller's choice; f32 sums, for benchmarks.
  void sum(Exec& exec, View inout, SumWay way);
  void sum_scattered(ConstView all, View mine);  // MPI_Reduce_scatter_block

  // Called by all ranks: those of equal `color` form a group of their own, ordered by `key` and
  // then by rank. Null for a negative color.
  std::unique_ptr<MpiComm> split(int color, int key, const std::string& axis);

 private:
  struct Impl;
  struct Message;
  struct Requests;
  class Exchange;
  class Hosts;
  MpiComm(std::unique_ptr<Impl> impl, const MpiOptions& options, const std::string& axis);
  void exchange(const char* call, std::span<const Message> messages);
  void post(const char* call, std::span<const Message> messages, Requests& requests);
  void finish(const char* call, Requests& requests);
  void gather_bytes(const void* mine, int64_t bytes, void* all);
  void reduce_parts(Exec& exec, const Tensor& parts, const void* own, View out, ReduceOp op);
  void reduce_gathered(Exec& exec, View inout, ReduceOp op);
  void reduce_shared(Exec& exec, View inout, ReduceOp op);
  void reduce_block(Exec& exec, View block, ReduceOp op);

  std::unique_ptr<Impl> impl_;
  MpiOptions options_;
  int rank_ = 0, size_ = 1;
  std::string name_;
  std::unique_ptr<HostGroup> hosts_;
};

}  // namespace weft
