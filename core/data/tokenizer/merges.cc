#include "core/data/tokenizer/merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace weft {

Merges::Merges(size_t merges)
    : slots_(std::bit_ceil(std::max<size_t>(16, 2 * merges))), mask_(slots_.size() - 1) {}

void Merges::put(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t slot = slot_of(key);
  while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask_;
  if (slots_[slot].key == kEmpty) ++count_;
  slots_[slot] = {key, merge};
}

void Merges::apply(WordScratch& scratch) const {
  if (empty() || scratch.symbols.empty()) return;
  scratch.symbols.size() <= 32 ? apply_short(scratch) : apply_long(scratch);
}

// Looks through all pairs for the lowest rank, again and again: best for words.
void Merges::apply_short(WordScratch& scratch) const {
  auto& symbols = scratch.symbols;
  size_t count = symbols.size();
  std::array<Merge, 32> next{};  // of symbol i and the one behind it
  constexpr Merge kNone{UINT32_MAX, -1};
  const auto look = [&](size_t i) {
    const Merge* found = find(symbols[i].id, symbols[i + 1].id);
    next[i] = found != nullptr ? *found : kNone;
  };
  for (size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (next[i].rank < next[best].rank) best = i;
    }
    if (next[best].id < 0) break;
    symbols[best].id = next[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i].id = symbols[i + 1].id;
      next[i] = next[i + 1];
    }
    --count;
    if (best > 0) look(best - 1);
    if (best + 1 < count) look(best);
  }
  symbols.resize(count);
  symbols.back().behind = -1;
}

// With a heap and links, for texts that nothing has cut into words.
void Merges::apply_long(WordScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto symbol = [&](int32_t at) -> WordScratch::Symbol& {
    return symbols[static_cast<size_t>(at)];
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) put_heap(scratch, static_cast<int32_t>(i));
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto left = static_cast<int32_t>(top & UINT32_MAX);
    const int32_t right = symbol(left).behind;
    if (symbol(left).id < 0 || right < 0) continue;
    const Merge* merge = find(symbol(left).id, symbol(right).id);
    if (merge == nullptr || merge->rank != top >> 32) continue;  // one of the two has changed
    symbol(left).id = merge->id;
    symbol(left).behind = symbol(right).behind;
    symbol(right).id = -1;
    if (symbol(left).behind >= 0) symbol(symbol(left).behind).before = left;
    if (symbol(left).before >= 0) put_heap(scratch, symbol(left).before);
    put_heap(scratch, left);
  }
}

void Merges::put_heap(WordScratch& scratch, int32_t left) const {
  const auto& here = scratch.symbols[static_cast<size_t>(left)];
  if (here.behind < 0) return;
  const auto* merge = find(here.id, scratch.symbols[static_cast<size_t>(here.behind)].id);
  if (merge == nullptr) return;
  scratch.heap.push_back(uint64_t{merge->rank} << 32 | static_cast<uint32_t>(left));
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

}  // namespace weft
