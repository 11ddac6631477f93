#pragma once

#include <algorithm>

#include "tests/support/vgpu/check/checker.h"

// The path that every access of an instrumented kernel takes.
namespace vgpu {

// Commands first: the command that wrote (or, before a write, read) this word must come before the
// running one. Leaves Word and Half recording only what the running command did. True if that is
// this access alone.
template <simt::Access kind>
inline bool Checker::order_commands(Space& space, uint64_t word, unsigned mask, const void* pc) {
  Word& w = space.words[word];
  const uint32_t now = history_.running();
  const bool first = w.writer != now && w.reader != now;
  if (w.writer != now) {
    if (!history_.before(w.writer)) report_order(space, word, {w.writer, true}, kind, pc);
    space.halves[2 * word].write = space.halves[2 * word + 1].write = 0;
  }
  if (w.reader != now) {
    if (!history_.before(w.reader)) {
      if (kind != kRead) report_order(space, word, {w.reader, false}, kind, pc);
      w.other_reader = w.reader;
    }
    space.halves[2 * word].read = space.halves[2 * word + 1].read = 0;
  }
  if (kind == kRead) {
    w.reader = now;
  } else {
    if (!history_.before(w.other_reader))
      report_order(space, word, {w.other_reader, false}, kind, pc);
    w.writer = now;
    w.written |= static_cast<uint8_t>(mask);
  }
  return first;
}

// Then threads of the running kernel, by halves of the word. Bytes begin..end lie in the word.
template <simt::Access kind>
inline void Checker::access_word(Space& space, uint64_t begin, uint64_t end, const Where& where) {
  const uint64_t word = begin / 4;
  const unsigned mask = ((1u << (end - begin)) - 1) << begin % 4;
  if (kind != kWrite && space.device_memory && (space.words[word].written & mask) != mask) {
    report_unwritten(where);
  }
  const bool first = order_commands<kind>(space, word, mask, where.pc);
  for (uint64_t half = begin / 2; 2 * half < end; ++half) {
    Half& h = space.halves[half];
    if (!first && races_.conflicts<Memory::kGlobal, kind>(h)) {
      report_race(where, h, Memory::kGlobal);
    }
    races_.remember<Memory::kGlobal, kind>(h, where.bytes == 1);
  }
}

template <simt::Access kind>
inline void Checker::access_global(Space& space, const Where& where) {
  const uint64_t offset = where.at - space.base, end = offset + where.bytes;
  if (!space.allocations.live(offset, where.bytes)) report_dead(where);
  if (offset / 4 == (end - 1) / 4) return access_word<kind>(space, offset, end, where);
  for (uint64_t begin = offset; begin < end; begin = begin / 4 * 4 + 4) {
    access_word<kind>(space, begin, std::min(end, begin / 4 * 4 + 4), where);
  }
}

template <simt::Access kind>
inline void Checker::access_shared(uint64_t offset, const Where& where) {
  for (uint64_t half = offset / 2; 2 * half < offset + where.bytes; ++half) {
    Half& h = shared_halves_[half];
    if (races_.conflicts<Memory::kShared, kind>(h)) report_race(where, h, Memory::kShared);
    if (kind != kWrite && !races_.written_in_this_block(h)) report_unwritten(where);
    races_.remember<Memory::kShared, kind>(h, where.bytes == 1);
  }
}

template <simt::Access kind>
inline void Checker::kernel_access(const Where& where) {
  if (where.at - stacks_begin_ < stacks_bytes_) return;
  const uint64_t range = range_of(where.at);
  if (range < kRanges && spaces_[range] != nullptr) {
    access_global<kind>(*spaces_[range], where);
  } else if (where.at - shared_begin_ < shared_bytes_) {
    access_shared<kind>(where.at - shared_begin_, where);
  } else if (where.at - static_begin_ < static_bytes_) {
    access_shared<kind>(kStaticShared + where.at - static_begin_, where);
  } else {
    access_elsewhere(where);
  }
}

}  // namespace vgpu
