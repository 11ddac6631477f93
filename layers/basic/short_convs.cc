#include "layers/basic/short_convs.h"

#include <algorithm>

namespace weft {
namespace {

struct Entered {
  State state;  // of the documents
};

// Whether one message to a neighbour is all that the convolutions need.
template <class Part>
bool together(const std::vector<Part>& parts, const Sequence& sequence) {
  return sequence.is_split() && std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
           return travel_of(sequence, part.conv->rule()).exchange == SpanExchange::kNeighbour;
         });
}

void append(State& to, const State& more) { to.insert(to.end(), more.begin(), more.end()); }

// The state of one convolution is one tensor.
State one_of(const State& all, size_t which) { return {all[which]}; }

}  // namespace

ConvsForward::ConvsForward(Exec& exec, std::vector<Part> parts, const MixerContext& context)
    : parts_(std::move(parts)), context_(context) {
  const Sequence& sequence = context.sequence;
  if (!together(parts_, sequence)) return;
  if (sequence.memory != nullptr) cached_ = &sequence.memory->next();
  if (cached_ != nullptr && sequence.memory->replays()) return;
  State mine;
  for (const Part& part : parts_) {
    const Summary summary = part.conv->rule().summarize(exec, {part.x, part.y}, sequence);
    append(mine, chains_of(exec, sequence, summary).update);
  }
  arriving_.emplace(exec, *sequence.ranks, mine, 1, sequence.travel);
}

void ConvsForward::finish(Exec& exec, SavedStack& saved) {
  const Sequence& sequence = context_.sequence;
  if (!together(parts_, sequence)) {
    for (const Part& part : parts_) {
      part.conv->forward(exec, part.x, part.y, sequence, context_.state, saved);
    }
    return;
  }
  State entering;
  if (arriving_) {
    const State came = arriving_->wait();
    for (size_t i = 0; i < parts_.size(); ++i) {
      const ShortConv::Rule& rule = parts_[i].conv->rule();
      const State chains = came.empty()
                               ? rule.start(exec, static_cast<int64_t>(sequence.chains.size()))
                               : one_of(came, i);
      append(entering, to_documents(exec, sequence, rule, chains));
    }
    if (cached_ != nullptr) cached_->entering = entering;
  } else {
    entering = cached_->entering;
  }
  NothingKept nothing;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    part.conv->rule().run(exec, {part.x, part.y}, sequence, one_of(entering, i), nullptr, nothing);
    saved.push(Entered{one_of(entering, i)});
  }
}

ConvsBackward::ConvsBackward(Exec& exec, std::vector<Part> parts, const MixerContext& context,
                             SavedStack& saved)
    : parts_(std::move(parts)), context_(context), entering_(parts_.size()) {
  const Sequence& sequence = context.sequence;
  if (!together(parts_, sequence)) {
    for (size_t i = parts_.size(); i-- > 0;) {
      const Part& part = parts_[i];
      part.conv->backward(exec, part.x, part.dy, part.dx, sequence, context.state, saved);
    }
    return;
  }
  for (size_t i = parts_.size(); i-- > 0;) entering_[i] = saved.pop<Entered>().state;
  State mine;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    append(mine, first_documents(exec, sequence,
                                 part.conv->rule().state_gradient(exec, {part.x, {}}, sequence, {},
                                                                  entering_[i], part.dy)));
  }
  arriving_.emplace(exec, *sequence.ranks, mine, -1, sequence.travel);
}

void ConvsBackward::finish(Exec& exec) {
  if (!arriving_) return;
  const Sequence& sequence = context_.sequence;
  const State came = arriving_->wait();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const State d_leaving = came.empty() ? State{} : from_chains(exec, sequence, one_of(came, i));
    part.conv->rule().run_backward(exec, {part.x, {}}, sequence, {}, entering_[i],
                                   {part.dy, d_leaving, nullptr}, {part.dx});
  }
}

}  // namespace weft
