#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// A text being cut into words. Pieces are views of the text or of strings made on the way.
struct Piece {
  std::string_view text;
  bool first = false;  // stands at the very beginning of what was given
};

class Pieces {
 public:
  std::vector<Piece> list;

  std::string_view keep(std::string text) { return kept_.emplace_back(std::move(text)); }
  void clear() {
    list.clear();
    kept_.clear();
  }

  // Puts in place of every piece what `cut(piece, emit)` emits; empty parts vanish. The first part
  // of a first piece is first.
  template <class Cut>
  void each(Cut&& cut) {
    next_.clear();
    for (const Piece& piece : list) {
      bool first = piece.first;
      cut(piece, [&](std::string_view part) {
        if (part.empty()) return;
        next_.push_back({part, first});
        first = false;
      });
    }
    list.swap(next_);
  }

 private:
  std::vector<Piece> next_;
  std::deque<std::string> kept_;
};

}  // namespace weft
