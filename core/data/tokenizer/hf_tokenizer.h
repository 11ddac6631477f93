#pragma once

#include <memory>
#include <string>

#include "core/data/tokenizer.h"

namespace weft {

// The tokenizer of a tokenizer.json.
std::unique_ptr<Tokenizer> hf_tokenizer(std::string content, const std::string& name,
                                        const std::string& end_of_document, EndOfDocument need);

}  // namespace weft
