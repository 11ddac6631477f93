#pragma once

#include "kernels/routing/expert_order.h"
#include "layers/context/sequence.h"
#include "layers/context/state.h"

namespace weft {

// Tokens that were sent to memories: one row per (token, memory) pair, sorted by memory, then
// document, then time. What a document sends to a memory is a sequence of its own, in which the
// tokens in between do not exist: a pseudo-document, memory * documents + document, that may be
// empty. Under sequence parallelism a memory of a batch row is a chain like the row itself.
struct MemoryRows {
  kernels::ExpertOrder order;  // its experts are memories
  Sequence sequence;           // of the pseudo-documents; has no positions

  int64_t count() const { return order.token.elements(); }
  int64_t memories() const { return static_cast<int64_t>(order.offsets.size()) - 1; }
  const Tensor& tokens() const { return order.token; }  // of every row, i32
};

// index: i32 [tokens, choices], no memory twice for one token.
MemoryRows rows_of_memories(Exec& exec, const Sequence& tokens, const Tensor& index,
                            int64_t memories);

// The parts of a mixer's state, [documents, memories, ...], as parts of the pseudo-documents',
// [memories * documents, ...], for as long as they are used. A state that is not there stays so.
class MemoryStates {
 public:
  MemoryStates(Exec& exec, MixerState* whole, int64_t memories);
  MixerState* get() { return whole_ == nullptr ? nullptr : &parts_; }
  State* part(std::string_view name) { return part_of(get(), name); }
  void give_back(Exec& exec);  // what the parts are now

 private:
  MixerState* whole_;
  MixerState parts_;
  int64_t memories_;
};

}  // namespace weft
