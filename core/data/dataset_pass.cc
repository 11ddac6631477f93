#include "core/data/dataset_pass.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/files/content_hash.h"

namespace weft {
namespace {

std::span<const std::byte> block_of(std::span<const std::byte> file, int64_t block) {
  const int64_t begin = block * kHashedBlock;
  const int64_t count = std::min(kHashedBlock, std::ssize(file) - begin);
  return file.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

}  // namespace

int64_t pass_blocks(const IndexedDataset& data) {
  return hashed_blocks(std::ssize(data.idx_bytes())) + hashed_blocks(std::ssize(data.bin_bytes()));
}

PassFindings look_through(ThreadPool& threads, const IndexedDataset& data, int64_t vocab,
                          int64_t begin, int64_t end,
                          const std::function<void(int64_t bytes)>& progress) {
  constexpr int64_t kGroup = 64;  // blocks between two reports of progress
  const int64_t of_idx = hashed_blocks(std::ssize(data.idx_bytes()));
  const auto count = static_cast<size_t>(end - begin);
  PassFindings found{.hashes = std::vector<int64_t>(count)};
  std::vector<int64_t> bad(count, PassFindings::kNone);
  const auto look_at = [&](int64_t i) {
    const int64_t block = begin + i - of_idx;
    const bool idx = block < 0;
    const auto bytes =
        idx ? block_of(data.idx_bytes(), begin + i) : block_of(data.bin_bytes(), block);
    found.hashes[static_cast<size_t>(i)] = block_hash(bytes);
    if (idx) return;
    const int64_t at = block * kHashedBlock;
    bad[static_cast<size_t>(i)] =
        data.find_byte_beyond(vocab, at, at + std::ssize(bytes)).value_or(PassFindings::kNone);
  };
  for (int64_t first = 0; first < end - begin; first += kGroup) {
    const int64_t group = std::min(kGroup, end - begin - first);
    threads.run(group, [&](int64_t i) { look_at(first + i); });
    if (progress) progress((first + group) * kHashedBlock);
  }
  for (const int64_t byte : bad) found.bad_byte = std::min(found.bad_byte, byte);
  return found;
}

DatasetHashes conclude(const IndexedDataset& data, int64_t vocab, const PassFindings& all) {
  if (all.bad_byte != PassFindings::kNone) data.refuse_token(all.bad_byte, vocab);
  const auto of_idx = static_cast<size_t>(hashed_blocks(std::ssize(data.idx_bytes())));
  const std::span<const int64_t> hashes(all.hashes);
  return {.bin = content_hash(std::ssize(data.bin_bytes()), hashes.subspan(of_idx)),
          .idx = content_hash(std::ssize(data.idx_bytes()), hashes.first(of_idx))};
}

}  // namespace weft
