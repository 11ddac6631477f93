#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/data/sampler.h"
#include "core/memory/exec.h"
#include "parallel/comm/host_group.h"

namespace weft {

// The datasets a config names: opened, checked completely against the vocabulary, cut into training
// and validation documents.
struct RunData {
  std::unique_ptr<Sampler> train;
  struct ValidSet {
    std::string name;  // in metrics; empty where it is the only one and has no name in the config
    double weight;     // in the mean of all
    std::unique_ptr<Sampler> sampler;
  };
  std::vector<ValidSet> valid;                // empty: no validation
  std::map<std::string, std::string> hashes;  // file -> content hash, for run.json
  // "train.0.bin" -> content hash, for checkpoints: what the data is, wherever it lies. Numbers
  // count the datasets of data.train and data.valid; "tokenizer" where there is one.
  std::map<std::string, std::string> contents;
  std::string tokenizer;     // the tokenizer.json they were made with; empty: not known
  int64_t train_tokens = 0;  // in the training sources, once through
};

// Collective: the ranks share the pass over all bytes. Throws ConfigError for files that are
// missing, damaged, too small, not the same for all ranks, or hold a token beyond the vocabulary.
RunData open_data(const Config& config, Exec& exec, HostGroup& ranks);

}  // namespace weft
