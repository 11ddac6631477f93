#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/vgpu/check/checker.h"
#include "tests/support/vgpu/device/doorbell.h"
#include "tests/support/vgpu/nccl/shared.h"
#include "tests/support/vgpu/wire/board.h"
#include "tests/support/vgpu/wire/command.h"

namespace vgpu {

// NCCL on the device: one group of calls at a time, whatever stream it is in. That is the least a
// GPU may do, so an order over several communicators that could hang a GPU does hang here. Sends
// are over only when they are received.
class Exchanger {
 public:
  Exchanger(Checker& checker, DeviceState& state, int device);

  // Messages of the host.
  void notice(const CommunicatorBody& body);
  bool begin(const Command& command);  // false: it is pending

  bool busy() const { return current_ != nullptr; }
  Ticket ticket() const { return ticket_; }
  // Moves on as far as the others allow; true when it is over. Throws DeviceError where members
  // do not agree.
  bool advance();
  void drop();

  Doorbell* doorbell() { return doorbell_.get(); }
  // Polling interval while a group is pending, in case a doorbell is missed.
  static constexpr int64_t kLookMicroseconds = 5'000;

 private:
  using Clock = std::chrono::steady_clock;
  struct Communicator {
    CommunicatorBody body;
    std::unique_ptr<SharedCommunicator> shared;
    uint32_t collectives = 0;  // begun
    bool aborted = false;

    int rank() const { return body.rank; }
    int size() const { return shared->size(); }
    Member& self() const { return shared->member(body.rank); }
  };
  struct Step {
    ExchangeCall call;
    bool begun = false, over = false;
    uint32_t number = 0;  // of its communicator's collectives, or of its channel's messages
  };

  bool advance_message(Step& step);
  bool advance_collective(Step& step);
  bool send(Step& step, Channel& channel);
  bool receive(Step& step, Channel& channel);
  void begin_collective(Step& step);
  void end_collective(const Step& step);
  void compare(const Signature& mine, int rank) const;
  Signature signature_of(const ExchangeCall& call) const {
    return {call, ticket_.stream, ticket_.number};
  }
  [[noreturn]] void report_message(const Channel& channel, int from, int to) const;

  void publish();  // the pending calls, to other members
  void ring_all();
  void fail_on_request();
  bool is_gone(const Member& member) {
    return member.listens.load() != 0 && !doorbell_->ring(member.doorbell);
  }
  void look_for_trouble();
  void name_wait(const Step& step, int rank, const char* verdict);
  std::vector<int> missing(const Step& step) const;
  std::string describe(const ExchangeCall& call) const;
  std::string describe_doing(int rank);
  bool waits_for_us(int rank) const;
  bool has_open(Call call, int peer) const;
  [[noreturn]] void stop(const std::string& text) const;

  std::vector<char> read(uint64_t from, uint64_t bytes);
  void write(uint64_t to, const char* from, uint64_t bytes);

  Checker& checker_;
  DeviceState& state_;
  int device_;
  std::unique_ptr<Doorbell> doorbell_;
  std::map<uint32_t, Communicator> communicators_;

  // The pending group.
  Communicator* current_ = nullptr;
  Ticket ticket_;
  std::vector<Step> steps_;
  bool hangs_ = false;  // on request
  bool named_ = false;
  int looks_like_deadlock_ = 0;  // in so many looks, one after the other
  Clock::time_point since_;
};

}  // namespace vgpu
