#include "core/files/content_hash.h"

#include <algorithm>
#include <vector>

#include <xxhash.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // the widest vectors that this processor has
#endif

#include "core/base/error.h"
#include "core/files/mapped_file.h"

namespace weft {

int64_t block_hash(std::span<const std::byte> block) {
  return static_cast<int64_t>(XXH3_64bits(block.data(), block.size()));
}

std::string content_hash(int64_t bytes, std::span<const int64_t> block_hashes) {
  WEFT_CHECK(std::ssize(block_hashes) == hashed_blocks(bytes), "{} hashes of {} bytes",
             block_hashes.size(), bytes);
  Hasher all;
  all.add(std::as_bytes(std::span(&bytes, 1)));
  all.add(std::as_bytes(block_hashes));
  return all.text();
}

std::string content_hash(const std::string& path) {
  const MappedFile file(path);
  std::vector<int64_t> hashes;
  for (int64_t at = 0; at < file.size(); at += kHashedBlock) {
    const int64_t count = std::min(kHashedBlock, file.size() - at);
    hashes.push_back(
        block_hash(file.bytes().subspan(static_cast<size_t>(at), static_cast<size_t>(count))));
  }
  return content_hash(file.size(), hashes);
}

}  // namespace weft
