#include "core/data/tokenizer/sentencepiece_model.h"

#include <cmath>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/files/protobuf.h"

namespace weft {
namespace {

using Model = SentencePieceModel;

Model::Piece read_piece(ProtobufReader fields) {
  Model::Piece piece;
  while (fields.next()) {
    if (fields.field() == 1) piece.text = fields.text();
    if (fields.field() == 2) piece.score = fields.real();
    if (fields.field() != 3) continue;
    if (fields.number() < 1 || fields.number() > 6)
      fields.refuse(fmt::format("a piece of type {}", fields.number()));
    piece.type = static_cast<Model::PieceType>(fields.number());
  }
  if (piece.text.empty() || !is_utf8(piece.text) || !std::isfinite(piece.score))
    fields.refuse("a piece without text, that is not UTF-8, or without a score");
  return piece;
}

struct TrainerFields {
  bool byte_fallback = false;
  int64_t end_of_text = 2;
};

TrainerFields read_trainer(ProtobufReader fields, Model& model) {
  TrainerFields own;
  while (fields.next()) {
    switch (fields.field()) {
      case 3:
        if (fields.number() != 1 && fields.number() != 2) {
          fields.refuse(fmt::format(
              "a model of type {} (word or char); supported are unigram (1) and bpe (2)",
              fields.number()));
        }
        model.kind = static_cast<Model::Kind>(fields.number());
        break;
      case 24: model.whitespace_as_suffix = fields.flag(); break;
      case 35: own.byte_fallback = fields.flag(); break;
      case 42: own.end_of_text = static_cast<int64_t>(fields.number()); break;
      case 44: model.unknown_surface = valid_utf8(fields.text()); break;
      default: break;
    }
  }
  return own;
}

void read_normalizer(ProtobufReader fields, Model& model) {
  while (fields.next()) {
    switch (fields.field()) {
      case 2:
        if (fields.text().empty()) break;
        model.charsmap = Charsmap::read(fields.text());
        if (!model.charsmap) fields.refuse("not a map of characters");
        break;
      case 3: model.add_dummy_prefix = fields.flag(); break;
      case 4: model.remove_extra_whitespaces = fields.flag(); break;
      case 5: model.escape_whitespaces = fields.flag(); break;
      default: break;
    }
  }
}

void refuse_denormalizer(ProtobufReader fields) {
  while (fields.next()) {
    if (fields.field() == 2 && !fields.text().empty())
      fields.refuse("a denormalizer, which is not supported");
  }
}

// Unknown piece and byte pieces; no piece may stand twice among those of its kind.
void index_pieces(Model& model, const std::string& name, const TrainerFields& trainer) {
  std::unordered_set<std::string_view> in_text, reserved;
  std::vector<int32_t> bytes(256, -1);
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const Model::Piece& piece = model.pieces[i];
    const auto id = static_cast<int32_t>(i);
    const auto refuse = [&](const char* reason) {
      throw ConfigError("{}: piece {} (\"{}\"): {}", name, id, piece.text, reason);
    };
    if (!(piece.in_text() ? in_text : reserved).insert(piece.text).second)
      refuse("stands there twice");
    if (piece.type == Model::PieceType::kUnknown) {
      if (model.unknown >= 0) refuse("a second unknown piece");
      model.unknown = id;
    }
    if (piece.type == Model::PieceType::kUnused && model.kind == Model::Kind::kBpe)
      refuse("unused pieces of BPE are not supported");
    if (piece.type != Model::PieceType::kByte) continue;
    unsigned byte = 256;
    for (unsigned b = 0; b < 256; ++b) {
      if (piece.text == fmt::format("<0x{:02X}>", b)) byte = b;
    }
    if (byte == 256 || !trainer.byte_fallback) refuse("no byte, or byte_fallback is off");
    bytes[byte] = id;
  }
  if (model.unknown < 0) throw ConfigError("{}: has no unknown piece", name);
  if (!trainer.byte_fallback) return;
  for (const int32_t id : bytes) {
    if (id < 0) throw ConfigError("{}: byte_fallback without pieces for all bytes", name);
  }
  model.byte_ids = bytes;
}

}  // namespace

SentencePieceModel SentencePieceModel::read(std::string_view bytes, const std::string& name) {
  SentencePieceModel model;
  TrainerFields trainer;
  ProtobufReader fields(bytes, name);
  while (fields.next()) {
    switch (fields.field()) {
      case 1: model.pieces.push_back(read_piece(fields.message())); break;
      case 2: trainer = read_trainer(fields.message(), model); break;
      case 3: read_normalizer(fields.message(), model); break;
      case 5: refuse_denormalizer(fields.message()); break;
      default: break;
    }
  }
  if (model.pieces.empty()) throw ConfigError("{}: not a SentencePiece model: no pieces", name);
  index_pieces(model, name, trainer);
  if (trainer.end_of_text >= 0 && trainer.end_of_text < std::ssize(model.pieces)) {
    const auto id = static_cast<int32_t>(trainer.end_of_text);
    if (model.pieces[static_cast<size_t>(id)].type == PieceType::kControl) model.end_of_text = id;
  }
  return model;
}

}  // namespace weft
