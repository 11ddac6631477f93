#include "parallel/schedule_check.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/base/error.h"

namespace weft {
namespace {

// A message between two stages: forward into `stage`, or backward into it.
using Message = std::tuple<bool, int, int>;  // forward?, receiving stage, micro-batch

struct Posted {
  double sent = -1, received = -1;  // when each half was posted; -1: not yet
};

struct Progress {
  std::vector<ActionGroup> groups;
  size_t next = 0;      // group
  bool posted = false;  // its transfers are on offer
  double time = 0;
  int held = 0;
};

class Simulation {
 public:
  Simulation(const std::vector<Plan>& plans, const PipeShape& shape, const PipeCosts& costs,
             Sends sends)
      : plans_(plans), shape_(shape), costs_(costs), sends_(sends), at_(plans.size()) {
    result_.ranks.resize(plans.size());
    for (size_t r = 0; r < plans.size(); ++r) at_[r].groups = grouped(plans[r]);
  }

  SimulatedPipe run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < at_.size(); ++r) {
        while (at_[r].next < at_[r].groups.size() && advance(r)) moved = true;
      }
    }
    check_ended();
    for (size_t r = 0; r < at_.size(); ++r) {
      result_.ranks[r].end = at_[r].time;
      result_.time = std::max(result_.time, at_[r].time);
    }
    double busiest = 0;
    for (const SimulatedRank& rank : result_.ranks) busiest = std::max(busiest, rank.busy);
    result_.bubble = 1 - busiest / result_.time;
    return result_;
  }

 private:
  int stage(size_t rank, const Action& action) const {
    return action.chunk * shape_.ranks + static_cast<int>(rank);
  }

  Message message(size_t rank, const Action& a) const {
    const int here = stage(rank, a);
    switch (a.step) {
      case Step::kSendForward: return {true, here + 1, a.micro_batch};
      case Step::kRecvForward: return {true, here, a.micro_batch};
      case Step::kSendBackward: return {false, here - 1, a.micro_batch};
      default: return {false, here, a.micro_batch};
    }
  }
  static bool sends(Step step) { return step == Step::kSendForward || step == Step::kSendBackward; }

  // One group of a rank; false when it must wait.
  bool advance(size_t rank) {
    Progress& me = at_[rank];
    const ActionGroup group = me.groups[me.next];
    const Action& first = plans_[rank][group.begin];
    if (!is_transfer(first.step)) {
      compute(rank, first);
      ++me.next;
      return true;
    }
    if (!me.posted) {
      me.posted = true;
      for (size_t i = group.begin; i < group.end; ++i) post(rank, plans_[rank][i]);
    }
    double ready = me.time;
    for (size_t i = group.begin; i < group.end; ++i) {
      const double done = done_at(rank, plans_[rank][i]);
      if (done < 0) return false;
      ready = std::max(ready, done);
    }
    me.time = ready;
    me.posted = false;
    ++me.next;
    return true;
  }

  void post(size_t rank, const Action& action) {
    Posted& posted = messages_[message(rank, action)];
    double& half = sends(action.step) ? posted.sent : posted.received;
    WEFT_CHECK(half < 0, "rank {} repeats {}", rank, to_string({action}));
    WEFT_CHECK(!sends(action.step) || computed(rank, action), "rank {}: {} before it was computed",
               rank, to_string({action}));
    half = at_[rank].time;
  }

  bool computed(size_t rank, const Action& send) const {
    const auto key = std::pair(stage(rank, send), send.micro_batch);
    return send.step == Step::kSendForward ? forwards_.contains(key) : inputs_.contains(key);
  }

  double done_at(size_t rank, const Action& action) {
    const Posted& posted = messages_[message(rank, action)];
    if (sends(action.step) && sends_ == Sends::kBuffered) return posted.sent;
    if (posted.sent < 0 || posted.received < 0) return -1;
    return std::max(posted.sent, sends_ == Sends::kMeet ? posted.received : posted.sent) +
           costs_.transfer;
  }

  void compute(size_t rank, const Action& a) {
    const auto key = std::pair(stage(rank, a), a.micro_batch);
    const auto once = [&](auto& done) {
      WEFT_CHECK(done.insert({key, true}).second, "rank {} computes {} twice", rank,
                 to_string({a}));
    };
    Progress& me = at_[rank];
    double cost = 0;
    if (a.step == Step::kForward) {
      check_arrived(rank, a, Step::kRecvForward, key.first > 0);
      once(forwards_);
      cost = costs_.forward;
      me.held += 1;
    } else {
      WEFT_CHECK(forwards_.contains(key), "rank {}: {} before its forward", rank, to_string({a}));
      if (a.step != Step::kBackwardWeight) {
        check_arrived(rank, a, Step::kRecvBackward, key.first + 1 < shape_.stages());
        once(inputs_);
        cost += costs_.input;
      }
      if (a.step != Step::kBackwardInput) {
        WEFT_CHECK(inputs_.contains(key), "rank {}: {} before its input half", rank,
                   to_string({a}));
        once(weights_);
        check_order(rank, a);
        cost += costs_.weight;
        me.held -= 1;
      }
    }
    me.time += cost;
    result_.ranks[rank].busy += cost;
    result_.ranks[rank].held = std::max(result_.ranks[rank].held, me.held);
  }

  void check_arrived(size_t rank, const Action& a, Step recv, bool needed) {
    if (!needed) return;
    const Posted& posted = messages_[message(rank, {recv, a.micro_batch, a.chunk})];
    WEFT_CHECK(posted.sent >= 0 && posted.received >= 0,
               "rank {}: {} before what it needs was received", rank, to_string({a}));
  }

  // Gradients of a stage are added up in the order of micro-batches.
  void check_order(size_t rank, const Action& a) {
    int& next = next_weight_[stage(rank, a)];
    WEFT_CHECK(a.micro_batch == next, "rank {}: gradients of micro-batch {} before those of {}",
               rank, a.micro_batch, next);
    ++next;
  }

  void check_ended() const {
    std::string waiting;
    for (size_t r = 0; r < at_.size(); ++r) {
      if (at_[r].next == at_[r].groups.size()) continue;
      const ActionGroup group = at_[r].groups[at_[r].next];
      const Plan stuck(plans_[r].begin() + static_cast<int64_t>(group.begin),
                       plans_[r].begin() + static_cast<int64_t>(group.end));
      waiting += fmt::format("{}rank {} in {}", waiting.empty() ? "" : ", ", r, to_string(stuck));
    }
    if (!waiting.empty()) throw Error("a schedule that never ends: {}", waiting);
    const size_t all =
        static_cast<size_t>(shape_.stages()) * static_cast<size_t>(shape_.micro_batches);
    // A plan without any backward is an evaluation.
    WEFT_CHECK(forwards_.size() == all && (weights_.size() == all || inputs_.empty()),
               "{} forwards and {} backwards of {}", forwards_.size(), weights_.size(), all);
    for (const auto& [key, posted] : messages_) {
      WEFT_CHECK(posted.sent >= 0 && posted.received >= 0,
                 "a message to stage {} for micro-batch {} has one half", std::get<1>(key),
                 std::get<2>(key));
    }
  }

  const std::vector<Plan>& plans_;
  PipeShape shape_;
  PipeCosts costs_;
  Sends sends_;
  std::vector<Progress> at_;
  std::map<Message, Posted> messages_;
  std::map<std::pair<int, int>, bool> forwards_, inputs_, weights_;  // by stage and micro-batch
  std::map<int, int> next_weight_;                                   // by stage
  SimulatedPipe result_;
};

}  // namespace

SimulatedPipe simulate(const std::vector<Plan>& plans, const PipeShape& shape,
                       const PipeCosts& costs, Sends sends) {
  return Simulation(plans, shape, costs, sends).run();
}

std::string bubble_formula(PipeSchedule schedule) {
  switch (schedule) {
    case PipeSchedule::kInterleaved: return "(p-1)/(v m + p-1)";
    case PipeSchedule::kZeroBubble: return "(p-1)/(3 m + p-1)";
    default: return "(p-1)/(m + p-1)";
  }
}

std::vector<Plan> plans_of(PipeSchedule schedule, const PipeShape& shape) {
  std::vector<Plan> plans;
  for (int r = 0; r < shape.ranks; ++r) plans.push_back(plan_of(schedule, shape, r));
  return plans;
}

}  // namespace weft
