#pragma once

#include <memory>
#include <string>

#include "core/config/run_config.h"
#include "core/data/tokenizer.h"
#include "parallel/checkpoint/checkpoint.h"

namespace weft {

// Where tokenizers lie: beside datasets (PREFIX.tokenizer.json, written by `weft data build`), in
// run folders and in checkpoints (tokenizer.json, so that a model can be used without its data).

// PREFIX.tokenizer.json where it exists, else nothing.
std::string tokenizer_beside(const std::string& dataset_prefix);

// To show text with: what ends a document does not matter and need not be there.
std::unique_ptr<Tokenizer> load_for_text(const std::string& path, const std::string& pattern = "");

// The tokenizer.json of a run: data.tokenizer, else the one beside the first training set; empty:
// none (bytes). ConfigError when it has more ids than the model, or the training sets' own differ.
std::string tokenizer_of_run(const Config& config);

// The tokenizer of a checkpoint: `asked` (a file), else the tokenizer.json that its manifest names,
// that in its run's folder, data.tokenizer, or bytes where the vocabulary holds them. ConfigError
// when it has more ids than the model.
std::unique_ptr<Tokenizer> tokenizer_of_checkpoint(const FoundCheckpoint& checkpoint,
                                                   const Config& config, const std::string& asked);

// A tokenizer's file as one of a checkpoint's other files, as a tokenizer.json; none for an empty
// path.
OtherFiles tokenizer_file(const std::string& path);

// Writes a tokenizer's file into a run's folder, as tokenizer.json. Nothing for an empty path or
// where the same is there.
void keep_tokenizer(const std::string& path, const std::string& run_dir);

}  // namespace weft
