#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/report/trace.h"
#include "parallel/comm/communicator.h"
#include "parallel/watchdog/activity.h"

namespace weft {

// What one operation on one axis has cost this rank. Bytes are those it must send at least,
// whatever the algorithm: all_gather (n-1) times its part, all_reduce 2 (n-1)/n of the whole, and
// so on; nothing for itself.
struct CommCost {
  int64_t calls = 0, bytes = 0;
  double seconds = 0;  // inside calls, waiting for others included
  CommCost& operator+=(const CommCost& other);
};

class CommTally {
 public:
  CommCost& of(const std::string& axis, const std::string& operation) {
    return costs_[axis][operation];
  }
  CommCost of_axis(const std::string& axis) const;
  std::map<std::string, int64_t> bytes_by_axis() const;
  std::map<std::string, int64_t> calls_by_axis() const;
  double seconds() const;
  void reset() { costs_.clear(); }

  Activity& activity() { return activity_; }  // the call being made, and where in the step
  Trace& trace() { return trace_; }           // all of them, while asked for

 private:
  std::map<std::string, std::map<std::string, CommCost>> costs_;
  Activity activity_;
  Trace trace_;
};

// Whether ranks compare what they call, and within a stage in which layer, before each call. Costs
// a small exchange per call; a mistake then shows as an Error, with both calls and places in it,
// instead of as a job that hangs or as a wrong number: on every rank of a collective, on the
// receiving one of a transfer.
enum class Signatures : uint8_t { kTrust, kCompare };

// Any communicator, counted, and on request compared.
class TracedComm final : public Communicator {
 public:
  TracedComm(std::unique_ptr<Communicator> inner, std::string axis, CommTally& tally,
             Signatures signatures = Signatures::kTrust);
  ~TracedComm() override;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }

  void all_reduce(Exec& exec, View inout, ReduceOp op) override;
  void all_gather(Exec& exec, ConstView mine, View all) override;
  void reduce_scatter(Exec& exec, ConstView all, View mine) override;
  void all_to_all_v(Exec& exec, ConstView send, std::span<const int64_t> send_rows, View recv,
                    std::span<const int64_t> recv_rows) override;
  void transfer(Exec& exec, std::span<const Transfer> together) override;
  std::unique_ptr<Pending> start(Exec& exec, std::span<const Transfer> together) override;
  HostGroup& hosts() override { return *hosts_; }
  std::unique_ptr<Pending> start_all_gather(Exec& exec, ConstView mine, View all) override;
  std::unique_ptr<Pending> start_reduce_scatter(Exec& exec, ConstView all, View mine) override;
  std::unique_ptr<Pending> start_all_to_all_v(Exec& exec, ConstView send,
                                              std::span<const int64_t> send_rows, View recv,
                                              std::span<const int64_t> recv_rows) override;
  std::unique_ptr<Pending> start_together(Exec& exec, const Collective& what,
                                          std::vector<Transfer> parts) override;

 private:
  class Hosts;
  class Timed;
  class StatedTransfers;
  template <class Start>
  std::unique_ptr<Pending> timed(const char* operation, int64_t bytes, Start&& start);
  template <class Call>
  void counted(const char* operation, int64_t bytes, Call&& call);
  void note(Trace::Kind kind, const char* operation, int64_t bytes, Trace::Time begin,
            Trace::Time end);
  std::vector<int64_t> gather_to_compare(std::span<const int64_t> mine);
  bool compares() const { return signatures_ == Signatures::kCompare && size() > 1; }
  int64_t bytes_sent(std::span<const Transfer> together) const;
  void compare(const std::string& signature);
  void state_call(const std::string& signature, int64_t* words) const;
  bool alike(const int64_t* one, const int64_t* other) const;
  // What each rank sends to each against what that one expects, in `unit`.
  void compare_amounts(const char* call, const char* unit, std::span<const int64_t> sent,
                       std::span<const int64_t> expected);

  void compare_all_to_all(ConstView send, std::span<const int64_t> send_rows, ConstView recv,
                          std::span<const int64_t> recv_rows);
  int64_t bytes_to_others(ConstView send, std::span<const int64_t> send_rows) const;

  std::unique_ptr<Communicator> inner_;
  std::string axis_;
  CommTally& tally_;
  Signatures signatures_;
  std::unique_ptr<HostGroup> hosts_;
};

}  // namespace weft
