#include "parallel/schedule.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"

namespace weft {
namespace {

// Adds computations with the transfers they need on one rank.
class Planner {
 public:
  Planner(const PipeShape& shape, int rank) : shape_(shape), rank_(rank) {}

  void forward(int micro_batch, int chunk = 0) { together({{Step::kForward, micro_batch, chunk}}); }

  // `compute`: the whole backward, or its input half.
  void backward(int micro_batch, int chunk = 0, Step compute = Step::kBackward) {
    together({{compute, micro_batch, chunk}});
  }

  // Computations between which nothing is sent or received: all of it comes before, and goes after.
  void together(const Plan& computations) {
    for (const Action& a : computations) {
      const bool forward = a.step == Step::kForward;
      const bool needed = forward ? stage(a.chunk) > 0 : stage(a.chunk) + 1 < shape_.stages();
      if (needed) add(forward ? Step::kRecvForward : Step::kRecvBackward, a.micro_batch, a.chunk);
    }
    plan_.insert(plan_.end(), computations.begin(), computations.end());
    for (const Action& a : computations) {
      const bool forward = a.step == Step::kForward;
      const bool wanted = forward ? stage(a.chunk) + 1 < shape_.stages() : stage(a.chunk) > 0;
      if (wanted) add(forward ? Step::kSendForward : Step::kSendBackward, a.micro_batch, a.chunk);
    }
  }

  void weights(int micro_batch) { add(Step::kBackwardWeight, micro_batch, 0); }

  Plan take() { return std::move(plan_); }

 private:
  int stage(int chunk) const { return chunk * shape_.ranks + rank_; }
  void add(Step step, int micro_batch, int chunk) { plan_.push_back({step, micro_batch, chunk}); }

  PipeShape shape_;
  int rank_;
  Plan plan_;
};

Plan gpipe(const PipeShape& shape, int rank) {
  Planner plan(shape, rank);
  for (int mb = 0; mb < shape.micro_batches; ++mb) plan.forward(mb);
  for (int mb = 0; mb < shape.micro_batches; ++mb) plan.backward(mb);
  return plan.take();
}

Plan one_forward_one_backward(const PipeShape& shape, int rank) {
  Planner plan(shape, rank);
  const int count = shape.micro_batches, warmup = std::min(shape.ranks - rank - 1, count);
  for (int k = 0; k < warmup; ++k) plan.forward(k);
  for (int k = warmup; k < count; ++k) {
    plan.forward(k);
    plan.backward(k - warmup);
  }
  for (int k = count - warmup; k < count; ++k) plan.backward(k);
  return plan.take();
}

// Micro-batches go through the chunks in groups as large as there are ranks. A forward and the
// backward that follows it exchange together: the ring of ranks would close on itself if each
// waited for its own.
Plan interleaved(const PipeShape& shape, int rank) {
  Planner plan(shape, rank);
  const int count = shape.micro_batches * shape.chunks, group = shape.ranks * shape.chunks;
  const auto micro_batch = [&](int k) { return k / group * shape.ranks + k % shape.ranks; };
  const auto chunk = [&](int k) { return k % group / shape.ranks; };
  const auto forward = [&](int k) { return Action{Step::kForward, micro_batch(k), chunk(k)}; };
  const auto backward = [&](int k) {
    return Action{Step::kBackward, micro_batch(k), shape.chunks - 1 - chunk(k)};
  };
  const int warmup =
      std::min(2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * shape.ranks, count);
  for (int k = 0; k < warmup; ++k) plan.together({forward(k)});
  for (int k = warmup; k < count; ++k) plan.together({forward(k), backward(k - warmup)});
  for (int k = count - warmup; k < count; ++k) plan.together({backward(k)});
  return plan.take();
}

// ZB-H1: later ranks put off the weight halves of as many micro-batches as they stand behind the
// first rank, which is how long they will wait at the end.
Plan zero_bubble(const PipeShape& shape, int rank) {
  Planner plan(shape, rank);
  const int count = shape.micro_batches, ahead = shape.ranks - rank;
  for (int k = 0; k < std::min(ahead, count); ++k) plan.forward(k);
  for (int k = 0; k < count; ++k) {
    plan.backward(k, 0, Step::kBackwardInput);
    if (k >= rank) plan.weights(k - rank);
    if (k + ahead < count) plan.forward(k + ahead);
  }
  for (int k = std::max(0, count - rank); k < count; ++k) plan.weights(k);
  return plan.take();
}

}  // namespace

bool is_transfer(Step step) {
  return step == Step::kRecvForward || step == Step::kSendForward || step == Step::kRecvBackward ||
         step == Step::kSendBackward;
}

PipeSchedule pipe_schedule(const std::string& name) {
  static constexpr std::array<const char*, 4> kNames = {"gpipe", "1f1b", "interleaved",
                                                        "zero_bubble"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  WEFT_CHECK(found != kNames.end(), "no pipeline schedule is called {}", name);
  return static_cast<PipeSchedule>(found - kNames.begin());
}

Plan plan_of(PipeSchedule schedule, const PipeShape& shape, int rank) {
  WEFT_CHECK(rank >= 0 && rank < shape.ranks && shape.micro_batches > 0 && shape.chunks > 0,
             "rank {} of {}, {} micro-batches, {} chunks", rank, shape.ranks, shape.micro_batches,
             shape.chunks);
  const bool interleaves = schedule == PipeSchedule::kInterleaved;
  WEFT_CHECK(shape.chunks == 1 || interleaves, "{} chunks without interleaving", shape.chunks);
  if (interleaves && shape.chunks > 1 && shape.micro_batches % shape.ranks != 0) {
    throw ConfigError(
        "parallel.schedule = \"interleaved\" runs micro-batches in groups of parallel.pipe = "
        "{}, and {} are not a multiple; nearest: {} micro-batches per data rank, or \"1f1b\"",
        shape.ranks, shape.micro_batches,
        (shape.micro_batches + shape.ranks - 1) / shape.ranks * shape.ranks);
  }
  switch (schedule) {
    case PipeSchedule::kGpipe: return gpipe(shape, rank);
    case PipeSchedule::kZeroBubble: return zero_bubble(shape, rank);
    case PipeSchedule::kInterleaved:
      if (shape.chunks > 1) return interleaved(shape, rank);
      [[fallthrough]];
    default: return one_forward_one_backward(shape, rank);
  }
}

Plan forward_plan(const PipeShape& shape, int rank) {
  Planner plan(shape, rank);
  for (int begin = 0; begin < shape.micro_batches; begin += shape.ranks) {
    const int end = std::min(begin + shape.ranks, shape.micro_batches);
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int mb = begin; mb < end; ++mb) plan.forward(mb, chunk);
    }
  }
  return plan.take();
}

std::string to_string(const Plan& plan) {
  static constexpr std::array<const char*, 8> kMarks = {"<F", "F", ">F", "<B", "B", ">B", "b", "w"};
  std::string text;
  for (const Action& action : plan) {
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", kMarks[static_cast<size_t>(action.step)],
                        action.micro_batch);
    if (action.chunk > 0) text += fmt::format(".{}", action.chunk);
  }
  return text;
}

std::vector<ActionGroup> grouped(const Plan& plan) {
  std::vector<ActionGroup> groups;
  for (size_t i = 0; i < plan.size(); ++i) {
    const bool joins = i > 0 && is_transfer(plan[i].step) && is_transfer(plan[i - 1].step);
    if (joins)
      ++groups.back().end;
    else
      groups.push_back({i, i + 1});
  }
  return groups;
}

}  // namespace weft
