#pragma once

#include <memory>

#include "core/data/tokenizer/json_part.h"
#include "core/data/tokenizer/normalizer.h"

namespace weft {

// The normalizers that are more than a line; null for a type that is none of them.
//   Precompiled, Strip, StripAccents, Lowercase, Nmt, BertNormalizer
std::unique_ptr<TextNormalizer::Step> normalizer_step(const JsonPart& json);

}  // namespace weft
