#include "tests/support/vgpu/device/exchanger.h"

#include <driver_types.h>
#include <nccl.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/support/vgpu/device/reduce.h"

namespace vgpu {
namespace {

bool is_message(const ExchangeCall& call) {
  return call.call == Call::kSend || call.call == Call::kReceive;
}

// Numbers that a member hands in, and gets, in units of the call's count.
struct Shape {
  int in, out;
};
Shape shape_of(const ExchangeCall& call, int rank, int size) {
  const bool root = call.peer == rank;
  switch (call.call) {
    case Call::kReduce: return {1, root ? 1 : 0};
    case Call::kBroadcast: return {root ? 1 : 0, 1};
    case Call::kAllGather: return {1, size};
    case Call::kReduceScatter: return {size, 1};
    case Call::kAllToAll: return {size, size};
    case Call::kGather: return {1, root ? size : 0};
    case Call::kScatter: return {root ? size : 0, 1};
    default: return {1, 1};
  }
}

}  // namespace

Exchanger::Exchanger(Checker& checker, DeviceState& state, int device)
    : checker_(checker), state_(state), device_(device) {}

void Exchanger::stop(const std::string& text) const {
  throw DeviceError(cudaErrorLaunchFailure, fmt::format("device {}: {}", device_, text));
}

void Exchanger::notice(const CommunicatorBody& body) {
  switch (body.what) {
    case CommunicatorBody::What::kJoin: {
      if (doorbell_ == nullptr) doorbell_ = std::make_unique<Doorbell>(device_);
      Communicator& c = communicators_[body.communicator];
      c.body = body;
      c.shared = std::make_unique<SharedCommunicator>(body.path);
      c.self().listens = 1;
      return;
    }
    case CommunicatorBody::What::kAbort:
      communicators_.at(body.communicator).aborted = true;
      return;
    case CommunicatorBody::What::kLeave: communicators_.erase(body.communicator); return;
  }
}

bool Exchanger::begin(const Command& command) {
  Reader r(command.body);
  const auto body = r.take<ExchangeBody>();
  const auto found = communicators_.find(body.communicator);
  if (found == communicators_.end()) stop("a call of NCCL on a communicator that was destroyed");
  current_ = &found->second;
  ticket_ = command.header.ticket;
  hangs_ = command.header.fault == Fault::kNccl;
  named_ = false;
  looks_like_deadlock_ = 0;
  since_ = Clock::now();
  steps_.clear();
  for (uint32_t i = 0; i < body.calls; ++i) steps_.push_back({r.take<ExchangeCall>()});
  if (hangs_) fail_on_request();
  publish();
  return advance();
}

void Exchanger::drop() {
  steps_.clear();
  if (current_ != nullptr) publish();
  current_ = nullptr;
}

// Messages make progress together, those between the same two ranks in the order of the calls;
// collectives come one after the other.
bool Exchanger::advance() {
  const bool aborted = current_->aborted;
  std::set<std::pair<int, Call>> waiting;  // channels
  bool collective_waits = hangs_, all_over = !hangs_, changed = false;
  for (Step& step : steps_) {
    if (step.over || hangs_ || aborted) continue;
    if (is_message(step.call)) {
      const std::pair channel(step.call.peer, step.call.call);
      step.over = waiting.count(channel) == 0 && advance_message(step);
      if (!step.over) waiting.insert(channel);
    } else {
      step.over = !collective_waits && advance_collective(step);
      collective_waits |= !step.over;
    }
    all_over &= step.over;
    changed |= step.over;
  }
  if (all_over || aborted) {
    drop();
    return true;
  }
  if (changed) publish();
  look_for_trouble();
  return false;
}

bool Exchanger::advance_message(Step& step) {
  const int rank = current_->rank(), peer = step.call.peer;
  auto& channels = current_->shared->head().channels;
  const bool sends = step.call.call == Call::kSend;
  return sends ? send(step, channels[rank][peer]) : receive(step, channels[peer][rank]);
}

bool Exchanger::send(Step& step, Channel& channel) {
  if (channel.refused.load() != 0) report_message(channel, current_->rank(), step.call.peer);
  if (step.begun) return channel.received.load() >= step.number;
  if (channel.sent.load() != channel.received.load()) return false;
  const uint64_t bytes = step.call.count * bytes_of(step.call.type);
  const std::vector<char> data = read(step.call.from, bytes);
  current_->shared->put_message(current_->rank(), step.call.peer, data.data(), bytes);
  channel.of_sender = signature_of(step.call);
  step.begun = true;
  step.number = channel.sent.load() + 1;
  channel.sent.store(step.number);
  ring_all();
  return false;
}

bool Exchanger::receive(Step& step, Channel& channel) {
  step.number = channel.received.load() + 1;
  if (channel.sent.load() < step.number) return false;
  const ExchangeCall& sent = channel.of_sender.call;
  if (sent.count != step.call.count || sent.type != step.call.type) {
    channel.of_receiver = signature_of(step.call);
    channel.refused.store(1);
    ring_all();
    report_message(channel, step.call.peer, current_->rank());
  }
  std::vector<char> data(step.call.count * bytes_of(step.call.type));
  current_->shared->get_message(step.call.peer, current_->rank(), data.data(), data.size());
  write(step.call.to, data.data(), data.size());
  channel.received.store(step.number);
  ring_all();
  return true;
}

void Exchanger::report_message(const Channel& channel, int from, int to) const {
  const auto side = [](const Signature& s) {
    return fmt::format("{} {} numbers, stream {} command {}", s.call.count, name_of(s.call.type),
                       s.stream, s.command);
  };
  stop(fmt::format(
      "a message is sent and received differently in {}\n  rank {} sends {}\n  rank {} "
      "receives {}",
      current_->body.name, from, side(channel.of_sender), to, side(channel.of_receiver)));
}

// Begins when all have finished the one before, ends when all have begun this one.
bool Exchanger::advance_collective(Step& step) {
  const auto all = [&](auto reached) {
    for (int r = 0; r < current_->size(); ++r) {
      if (!reached(current_->shared->member(r))) return false;
    }
    return true;
  };
  if (!step.begun) {
    const uint32_t before = current_->collectives;
    if (!all([&](const Member& m) { return m.finished.load() >= before; })) return false;
    begin_collective(step);
  }
  if (!all([&](const Member& m) { return m.begun.load() >= step.number; })) return false;
  end_collective(step);
  return true;
}

void Exchanger::begin_collective(Step& step) {
  step.begun = true;
  step.number = ++current_->collectives;
  const ExchangeCall& call = step.call;
  const Shape shape = shape_of(call, current_->rank(), current_->size());
  const uint64_t bytes = static_cast<uint64_t>(shape.in) * call.count * bytes_of(call.type);
  const std::vector<char> data = read(call.from, bytes);
  current_->shared->put(current_->rank(), data.data(), bytes);
  Member& self = current_->self();
  self.signature = signature_of(call);
  self.begun.store(step.number);
  ring_all();
}

void Exchanger::compare(const Signature& mine, int rank) const {
  const Signature& other = current_->shared->member(rank).signature;
  const ExchangeCall &a = mine.call, &b = other.call;
  const bool has_root = a.call == Call::kReduce || a.call == Call::kBroadcast ||
                        a.call == Call::kGather || a.call == Call::kScatter;
  const bool reduces =
      a.call == Call::kAllReduce || a.call == Call::kReduce || a.call == Call::kReduceScatter;
  if (a.call == b.call && a.count == b.count && a.type == b.type &&
      (!reduces || a.reduction == b.reduction) && (!has_root || a.peer == b.peer)) {
    return;
  }
  stop(
      fmt::format("members of {} call NCCL differently, in collective {}\n  rank {}: {}, stream {} "
                  "command {}\n  rank {}: {}, stream {} command {}",
                  current_->body.name, current_->collectives, current_->rank(), describe(a),
                  mine.stream, mine.command, rank, describe(b), other.stream, other.command));
}

void Exchanger::end_collective(const Step& step) {
  const ExchangeCall& call = step.call;
  const SharedCommunicator& shared = *current_->shared;
  const int rank = current_->rank(), size = current_->size();
  Member& self = current_->self();
  for (int r = 0; r < size; ++r) compare(self.signature, r);
  const uint64_t part = call.count * bytes_of(call.type);
  const Shape shape = shape_of(call, rank, size);
  std::vector<char> result(static_cast<size_t>(shape.out) * part);
  const bool scattered = call.call == Call::kReduceScatter || call.call == Call::kAllToAll ||
                         call.call == Call::kScatter;
  const uint64_t at = scattered ? static_cast<uint64_t>(rank) * part : 0;
  std::vector<std::vector<char>> parts;
  for (int r = 0; r < size && shape.out > 0; ++r) {
    const bool gives = shape_of(call, r, size).in > 0;
    parts.emplace_back(gives ? part : 0);
    shared.get(r, parts.back().data(), parts.back().size(), at);
  }
  if (call.call == Call::kAllReduce || call.call == Call::kReduce ||
      call.call == Call::kReduceScatter) {
    if (shape.out > 0) reduce(call.reduction, call.type, parts, call.count, result.data());
  } else {
    char* to = result.data();
    for (const auto& p : parts) to = std::copy(p.begin(), p.end(), to);
  }
  write(call.to, result.data(), result.size());
  self.finished.store(step.number);
  ring_all();
}

std::vector<char> Exchanger::read(uint64_t from, uint64_t bytes) {
  if (bytes == 0) return {};
  if (bytes > kMaxMessage) stop(fmt::format("a call of NCCL with {} bytes", bytes));
  checker_.access_range(Checker::Direction::kReads, from, bytes);
  const auto* at = reinterpret_cast<const char*>(from);
  return {at, at + bytes};
}

void Exchanger::write(uint64_t to, const char* from, uint64_t bytes) {
  if (bytes == 0) return;
  checker_.access_range(Checker::Direction::kWrites, to, bytes);
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
}

}  // namespace vgpu
