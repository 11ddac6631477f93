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
  // of a first piece is first, unless what stood before it was left out.
  template <class Cut>
  void each(Cut&& cut) {
    next_.clear();
    for (const Piece& piece : list) {
      bool first = piece.first;
      cut(piece, [&](std::string_view part) {
        if (part.empty()) return;
        const bool later = part.data() > piece.text.data() && part.data() < end_of(piece.text);
        next_.push_back({part, first && !later});
        first = false;
      });
    }
    list.swap(next_);
  }

 private:
  static const char* end_of(std::string_view text) { return text.data() + text.size(); }

  std::vector<Piece> next_;
  std::deque<std::string> kept_;
};

}  // namespace weft
