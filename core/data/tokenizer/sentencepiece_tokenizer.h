#pragma once

#include <memory>
#include <string>

#include "core/data/tokenizer.h"

namespace weft {

// The tokenizer of a SentencePiece .model file; ids and texts are those of that package. It puts
// nothing around a text. Its json() is a tokenizer.json for Weft alone: a model of type
// "SentencePiece" with the file in base64, since no tokenizer.json gives the same ids to every
// text.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string file, const std::string& name,
                                                   const std::string& end_of_document,
                                                   EndOfDocument need);

}  // namespace weft
