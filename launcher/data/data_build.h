#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "core/data/tokenizer.h"
#include "launcher/data/documents.h"

namespace weft {

struct DataBuilt {
  int64_t files = 0, documents = 0, bytes = 0, tokens = 0;  // bytes: of text
  int64_t not_text = 0, empty = 0;                          // documents left out
  std::string not_text_in = {};  // the file with the first of those that are not text
  int64_t resumed = 0;           // of the documents: made by an earlier start
  bool started_over = false;     // an earlier start was of other inputs or options
};

struct DataBuild {
  TextInputs from;
  std::string out;        // prefix
  std::string tokenizer;  // a file that load_tokenizer reads; empty: bytes
  std::string pattern;    // for load_tokenizer
  std::string end_of_document;
  int64_t max_bytes = 0;  // of text; 0: all
  int threads = 0;        // 0: every core
  bool force = false;

  int64_t batch_bytes = 1 << 18;           // of text that a thread takes at a time
  int64_t keep_bytes = int64_t{64} << 20;  // of text between two places to go on from
  std::optional<std::chrono::milliseconds> show_every = {};  // progress; default: TextProgress's
  std::function<void(const DataBuilt&)> after_batches = {};  // for tests: stop anywhere
  std::function<void()> while_finishing = {};                // likewise, between files put in place
};

// Writes out.bin, out.idx and out.tokenizer.json. Shows progress on stderr. Stopped in the middle
// and started again with the same inputs and options it goes on; the files are the same bytes for
// any number of threads and stops.
DataBuilt build_dataset(const DataBuild& options);

}  // namespace weft
