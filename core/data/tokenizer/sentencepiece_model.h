#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/data/tokenizer/charsmap.h"

namespace weft {

// The content of a SentencePiece .model file that encoding and decoding need.
struct SentencePieceModel {
  enum class Kind : uint8_t { kUnigram = 1, kBpe = 2 };
  enum class PieceType : uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
    bool in_text() const {  // can be found in a text
      return type == PieceType::kNormal || type == PieceType::kUserDefined ||
             type == PieceType::kUnused;
    }
  };

  // The file is not trusted: refused with a ConfigError that starts with `name`.
  static SentencePieceModel read(std::string_view bytes, const std::string& name);

  std::vector<Piece> pieces;  // by id
  Kind kind = Kind::kUnigram;
  int32_t unknown = -1;
  std::optional<int32_t> end_of_text;  // a control piece
  std::vector<int32_t> byte_ids;       // 256 where bytes are fallen back on, or none
  std::string unknown_surface = " \u2047 ";
  std::optional<Charsmap> charsmap;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  bool whitespace_as_suffix = false;
};

}  // namespace weft
