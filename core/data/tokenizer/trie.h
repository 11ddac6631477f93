#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

// Strings with values, for the question which of them a text begins with.
class Trie {
 public:
  Trie() : Trie(std::vector<std::pair<std::string, int32_t>>{}) {}
  // The empty string is left out; of equal strings the last one counts.
  explicit Trie(std::vector<std::pair<std::string, int32_t>> entries);

  bool empty() const { return nodes_.size() == 1; }

  // found(length, value) for every string that `text` begins with, the shortest first.
  template <class Found>
  void each_prefix(std::string_view text, Found&& found) const {
    if (text.empty()) return;
    int32_t node = first_[static_cast<unsigned char>(text[0])];
    for (size_t length = 1; node > 0; ++length) {
      if (nodes_[static_cast<size_t>(node)].value >= 0)
        found(length, nodes_[static_cast<size_t>(node)].value);
      if (length == text.size()) return;
      node = child(node, text[length]);
    }
  }

  // The longest string that `text` begins with: its length (0: none) and value.
  std::pair<size_t, int32_t> longest(std::string_view text) const {
    std::pair<size_t, int32_t> best{0, -1};
    each_prefix(text, [&](size_t length, int32_t value) { best = {length, value}; });
    return best;
  }

 private:
  // The children of a node lie side by side; labels_[i] leads to nodes_[i].
  struct Node {
    int32_t value = -1, children = 0;
    uint16_t count = 0;
  };
  int32_t child(int32_t node, char c) const {
    const Node& here = nodes_[static_cast<size_t>(node)];
    const char* labels = labels_.data() + here.children;
    const void* found = std::memchr(labels, c, here.count);
    if (found == nullptr) return 0;
    return here.children + static_cast<int32_t>(static_cast<const char*>(found) - labels);
  }

  std::vector<Node> nodes_;  // the first is the root
  std::vector<char> labels_;
  std::array<int32_t, 256> first_{};  // children of the root; 0: none
};

}  // namespace weft
