#include "launcher/eval/shared_pass.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "launcher/data/text_progress.h"
#include "parallel/layout/layout.h"

namespace weft {
namespace {

// Ranks may see different files by mistake.
void check_same_sizes(const IndexedDataset& data, HostGroup& ranks) {
  const std::array<int64_t, 2> mine = {std::ssize(data.bin_bytes()), std::ssize(data.idx_bytes())};
  const std::vector<int64_t> all = ranks.gather(mine);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == all[i % 2]) continue;
    throw ConfigError(
        "{}: has {} bytes for rank 0 and {} for rank {}; data must be the same on every node",
        i % 2 == 0 ? data.bin_path() : data.idx_path(), all[i % 2], all[i], i / 2);
  }
}

}  // namespace

DatasetHashes check_together(const IndexedDataset& data, int64_t vocab, Exec& exec,
                             HostGroup& ranks) {
  check_same_sizes(data, ranks);
  const int64_t blocks = pass_blocks(data);
  const IndexRange part = even_part(blocks, ranks.rank(), ranks.size());
  TextProgress progress;
  const auto show = [&](int64_t bytes) {
    if (ranks.rank() == 0) progress.show("checking " + data.prefix(), bytes);
  };
  const PassFindings mine = look_through(exec.threads, data, vocab, part.begin, part.end, show);
  // Every rank sends the same count of numbers, for parts of any size.
  const int64_t largest_part = (blocks + ranks.size() - 1) / ranks.size();
  std::vector<int64_t> sent(static_cast<size_t>(1 + largest_part));
  std::copy(mine.hashes.begin(), mine.hashes.end(), sent.begin() + 1);
  sent[0] = mine.bad_byte;
  const std::vector<int64_t> received = ranks.gather(sent);
  PassFindings all;
  for (int r = 0; r < ranks.size(); ++r) {
    const int64_t* from = received.data() + r * std::ssize(sent);
    all.bad_byte = std::min(all.bad_byte, *from++);
    all.hashes.insert(all.hashes.end(), from, from + even_part(blocks, r, ranks.size()).size());
  }
  return conclude(data, vocab, all);
}

}  // namespace weft
