#include "core/data/tokenizer/trie.h"

#include <algorithm>

namespace weft {

Trie::Trie(std::vector<std::pair<std::string, int32_t>> entries) : nodes_(1), labels_(1) {
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Level by level: the entries from `begin` to `end` share their first `depth` bytes.
  struct Range {
    size_t begin, end, node;
  };
  std::vector<Range> level, next;
  if (!entries.empty()) level.push_back({0, entries.size(), 0});
  for (size_t depth = 0; !level.empty(); ++depth, level.swap(next)) {
    next.clear();
    for (const Range& range : level) {
      size_t at = range.begin;
      for (; at < range.end && entries[at].first.size() == depth; ++at) {
        nodes_[range.node].value = entries[at].second;
      }
      nodes_[range.node].children = static_cast<int32_t>(nodes_.size());
      while (at < range.end) {
        const size_t begin = at;
        const char label = entries[at].first[depth];
        while (at < range.end && entries[at].first[depth] == label) ++at;
        next.push_back({begin, at, nodes_.size()});
        nodes_.emplace_back();
        labels_.push_back(label);
        ++nodes_[range.node].count;
      }
    }
  }
  for (int32_t i = nodes_[0].children; i < nodes_[0].children + nodes_[0].count; ++i) {
    first_[static_cast<unsigned char>(labels_[static_cast<size_t>(i)])] = i;
  }
}

}  // namespace weft
