#include <nccl.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tests/support/vgpu/device/exchanger.h"

// Finds and names waits that cannot end.
namespace vgpu {
namespace {

// Waits shorter than this are not reported. A deadlock of two devices cannot resolve, so it is
// reported sooner.
constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kDeadlockPatience = std::chrono::milliseconds(300);

constexpr int kDeadlockLooks = 3;  // published states may change while they are read

}  // namespace

std::string Exchanger::describe(const ExchangeCall& call) const {
  std::string text =
      fmt::format("{} of {} {} numbers", name_of(call.call), call.count, name_of(call.type));
  switch (call.call) {
    case Call::kAllReduce:
    case Call::kReduceScatter: return text + fmt::format(" ({})", name_of(call.reduction));
    case Call::kReduce:
      return text + fmt::format(" ({}) at rank {}", name_of(call.reduction), call.peer);
    case Call::kBroadcast:
    case Call::kScatter:
    case Call::kReceive: return text + fmt::format(" from rank {}", call.peer);
    case Call::kGather:
    case Call::kSend: return text + fmt::format(" to rank {}", call.peer);
    default: return text;
  }
}

// In every communicator of this device: a member waits in one of them, and we may be in another.
void Exchanger::publish() {
  std::string text;
  uint64_t sends_to = 0, receives_from = 0;
  uint32_t number = 0;
  for (const Step& step : steps_) {
    if (step.over) continue;
    if (text.empty()) {
      text = fmt::format("{} in {}, stream {} command {}", describe(step.call), current_->body.name,
                         ticket_.stream, ticket_.number);
    }
    const uint64_t peer = uint64_t{1} << step.call.peer;
    if (step.call.call == Call::kSend) {
      sends_to |= peer;
    } else if (step.call.call == Call::kReceive) {
      receives_from |= peer;
    } else if (number == 0) {
      number = step.begun ? step.number : current_->collectives + 1;
    }
  }
  for (auto& [n, c] : communicators_) {
    Member& self = c.self();
    self.doing_in.store(0);
    if (text.empty()) continue;
    std::snprintf(self.doing, sizeof self.doing, "%s", text.c_str());
    self.doing_number.store(number);
    self.sends_to.store(sends_to);
    self.receives_from.store(receives_from);
    self.doing_in.store(current_->shared->head().id.load());
  }
}

void Exchanger::fail_on_request() {
  current_->self().error = ncclRemoteError;
  std::fprintf(stderr,
               "vgpu: device %d: NCCL fails in %s in %s, stream %u command %u (VGPU_FAULT)\n",
               device_, describe(steps_.front().call).c_str(), current_->body.name, ticket_.stream,
               ticket_.number);
}

void Exchanger::ring_all() {
  for (int r = 0; r < current_->size(); ++r) {
    if (r != current_->rank()) doorbell_->ring(current_->shared->member(r).doorbell);
  }
}

// Ranks that a step waits for.
std::vector<int> Exchanger::missing(const Step& step) const {
  if (step.call.call == Call::kSend || step.call.call == Call::kReceive) return {step.call.peer};
  std::vector<int> ranks;
  for (int r = 0; r < current_->size(); ++r) {
    const Member& m = current_->shared->member(r);
    const bool there =
        step.begun ? m.begun.load() >= step.number : m.finished.load() >= current_->collectives;
    if (!there) ranks.push_back(r);
  }
  return ranks;
}

std::string Exchanger::describe_doing(int rank) {
  const Member& m = current_->shared->member(rank);
  if (is_gone(m)) return "whose device is gone";
  if (m.doing_in.load() != 0) return fmt::format("which is in {}", m.doing);
  return fmt::format("which has begun {} collectives of it and is in no call of NCCL",
                     m.begun.load());
}

bool Exchanger::has_open(Call call, int peer) const {
  return std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
    return !step.over && step.call.call == call && step.call.peer == peer;
  });
}

// True if another device is in a call that needs this one and that is not part of the pending group
// here: since each executes one group at a time, neither can make progress.
bool Exchanger::waits_for_us(int rank) const {
  const Member& m = current_->shared->member(rank);
  const uint64_t id = m.doing_in.load();
  for (const auto& [n, c] : communicators_) {
    if (id != c.shared->head().id.load()) continue;
    if (m.doing_number.load() > c.self().begun.load()) return true;
    const bool here = &c == current_;
    const uint64_t us = uint64_t{1} << c.rank();
    if ((m.sends_to.load() & us) != 0 && !(here && has_open(Call::kReceive, rank))) return true;
    if ((m.receives_from.load() & us) != 0 && !(here && has_open(Call::kSend, rank))) return true;
  }
  return false;
}

void Exchanger::look_for_trouble() {
  const auto waited = Clock::now() - since_;
  if (named_ || hangs_ || waited < kDeadlockPatience) return;
  const auto open =
      std::find_if(steps_.begin(), steps_.end(), [](const Step& s) { return !s.over; });
  const std::vector<int> ranks = missing(*open);
  const auto stuck =
      std::find_if(ranks.begin(), ranks.end(), [&](int r) { return waits_for_us(r); });
  looks_like_deadlock_ = stuck == ranks.end() ? 0 : looks_like_deadlock_ + 1;
  if (looks_like_deadlock_ >= kDeadlockLooks) {
    state_.noted.fetch_add(1);
    return name_wait(*open, *stuck, "\n  they wait for each other: calls are in different orders");
  }
  for (const int rank : ranks) {
    const bool gone = is_gone(current_->shared->member(rank));
    if (gone) current_->self().error = ncclRemoteError;
    if (gone || waited > kPatience) return name_wait(*open, rank, "");
  }
}

void Exchanger::name_wait(const Step& step, int rank, const char* verdict) {
  named_ = true;
  std::fprintf(stderr,
               "vgpu: device %d: rank %d of %d waits in %s in %s, stream %u command %u\n  for rank "
               "%d, %s%s\n",
               device_, current_->rank(), current_->size(), describe(step.call).c_str(),
               current_->body.name, ticket_.stream, ticket_.number, rank,
               describe_doing(rank).c_str(), verdict);
}

}  // namespace vgpu
