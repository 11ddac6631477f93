#include "layers/memory/memory_rows.h"

#include <algorithm>

#include "kernels/rows/gather.h"
#include "layers/context/tensor_of.h"

namespace weft {
namespace {

// [a * b, rest] or [a, b, rest] -> its first two dims exchanged, in the same form as `like` says.
Tensor exchanged(Exec& exec, const Tensor& t, int64_t a, int64_t b, const Shape& to_shape) {
  const Tensor to = exec.empty(to_shape, t.dtype());
  if (t.elements() == 0) return to;
  std::vector<int32_t> from(static_cast<size_t>(a * b));
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = 0; j < b; ++j) {
      from[static_cast<size_t>(j * a + i)] = static_cast<int32_t>(i * b + j);
    }
  }
  const Shape rows{a * b, t.elements() / (a * b)};
  kernels::gather_rows(exec, t.reshaped(rows), tensor_of(exec, std::move(from)), to.reshaped(rows));
  return to;
}

Shape shape_of(std::initializer_list<int64_t> first, const Shape& shape, int skipped) {
  Shape out(first);
  for (int i = skipped; i < shape.dims(); ++i) out.append(shape[i]);
  return out;
}

State to_memories(Exec& exec, const State& state, int64_t memories) {
  State out;
  for (const Tensor& t : state) {
    const Shape& s = t.shape();
    WEFT_CHECK(s.dims() > 1 && s[1] == memories, "a state {} of {} memories", s, memories);
    out.push_back(exchanged(exec, t, s[0], memories, shape_of({memories * s[0]}, s, 2)));
  }
  return out;
}

State to_documents(Exec& exec, const State& state, int64_t memories) {
  State out;
  for (const Tensor& t : state) {
    const int64_t documents = t.shape()[0] / memories;
    out.push_back(
        exchanged(exec, t, memories, documents, shape_of({documents, memories}, t.shape(), 1)));
  }
  return out;
}

}  // namespace

MemoryRows rows_of_memories(Exec& exec, const Sequence& tokens, const Tensor& index,
                            int64_t memories) {
  MemoryRows rows{.order = kernels::order_by_expert(exec, index, memories), .sequence = {}};
  Sequence& own = rows.sequence;
  own.ranks = tokens.ranks;
  own.travel = tokens.travel;
  own.records = tokens.records;
  own.profile = tokens.profile;
  own.memory = tokens.memory;
  own.chunk_states = tokens.chunk_states;
  std::vector<int32_t> documents = {0};
  const std::vector<int32_t> sorted = download<int32_t>(exec, rows.order.token);
  const int32_t* token = sorted.data();
  const auto count = static_cast<int32_t>(tokens.count());
  for (int32_t m = 0; m < static_cast<int32_t>(memories); ++m) {
    const int32_t* end = token + rows.order.offsets[static_cast<size_t>(m) + 1];
    const int32_t* at = token + rows.order.offsets[static_cast<size_t>(m)];
    for (size_t d = 0; d < static_cast<size_t>(count); ++d) {
      at = std::lower_bound(at, end, tokens.documents[d + 1]);
      documents.push_back(static_cast<int32_t>(at - token));
    }
    for (const Chain& chain : tokens.chains) {
      own.chains.push_back({m * count + chain.first, m * count + chain.last, chain.continues});
    }
  }
  own.documents = HostTable(std::move(documents));
  return rows;
}

MemoryStates::MemoryStates(Exec& exec, MixerState* whole, int64_t memories)
    : whole_(whole), memories_(memories) {
  if (whole == nullptr) return;
  for (const auto& [name, state] : whole->parts()) {
    parts_.part(name) = to_memories(exec, state, memories);
  }
}

void MemoryStates::give_back(Exec& exec) {
  if (whole_ == nullptr) return;
  for (const auto& [name, state] : parts_.parts()) {
    whole_->part(name) = to_documents(exec, state, memories_);
  }
}

}  // namespace weft
