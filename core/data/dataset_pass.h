#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/data/indexed_dataset.h"
#include "core/threads/thread_pool.h"

// The one pass over all bytes of a dataset: every token is compared with the vocabulary, and both
// files are hashed. Threads share it, and ranks can: each takes some of the blocks.
namespace weft {

// Blocks of the pair (core/files/content_hash.h): first those of the .idx, then those of the .bin.
int64_t pass_blocks(const IndexedDataset& data);

struct PassFindings {
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  std::vector<int64_t> hashes = {};  // one per block
  int64_t bad_byte = kNone;          // of the .bin: the first token outside [0, vocab)
};
// Looks at blocks [begin, end), and tells now and then how many bytes that were so far.
PassFindings look_through(ThreadPool& threads, const IndexedDataset& data, int64_t vocab,
                          int64_t begin, int64_t end,
                          const std::function<void(int64_t bytes)>& progress = {});

struct DatasetHashes {
  std::string bin, idx;
};
// From the findings of all blocks. ConfigError with file, document and byte for a bad token.
DatasetHashes conclude(const IndexedDataset& data, int64_t vocab, const PassFindings& all);

}  // namespace weft
