#pragma once

#include <memory>

#include <CLI/CLI.hpp>

#include "launcher/data/documents.h"

// The parts of `weft data` that have a file of their own, and what they share.
namespace weft {

void add_data_build(CLI::App& data);
void add_data_encode(CLI::App& data);
void add_data_tokenizer(CLI::App& data);

// inputs, --jsonl, --key, --document, --strip, --shuffle; --max-bytes.
void add_pattern_option(CLI::App& app, std::string& pattern);
void add_text_options(CLI::App& app, TextInputs& inputs, int64_t& max_bytes);

std::string grouped(int64_t number);  // 1234567 as "1,234,567"

}  // namespace weft
