#include "parallel/checkpoint/checked_file.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/files/hash.h"
#include "core/threads/thread_pool.h"

namespace weft {
namespace {

// Calls task(block, room) for every block of a file of `size` bytes, from several threads.
template <class Task>
void each_block(int64_t size, Task&& task) {
  const int64_t blocks = hashed_blocks(size);
  ThreadPool crew(threads_for_blocks(blocks));
  std::vector<std::unique_ptr<std::byte[]>> rooms(static_cast<size_t>(crew.size()));
  crew.run_on(blocks, [&](int64_t block, int thread) {
    auto& room = rooms[static_cast<size_t>(thread)];
    if (!room) room = std::make_unique_for_overwrite<std::byte[]>(kHashedBlock);
    const int64_t count = std::min(kHashedBlock, size - block * kHashedBlock);
    task(block, std::span(room.get(), static_cast<size_t>(count)));
  });
}

}  // namespace

int threads_for_blocks(int64_t blocks) {
  // A second thread also where there is one core: while one waits for the disk, the other hashes.
  return static_cast<int>(std::clamp<int64_t>(blocks / 4, 1, std::max(2, available_cores())));
}

CheckedFile::CheckedFile(const std::string& folder, const Manifest::File& listed)
    : listed_(listed), file_(folder + "/" + listed.name, RegularFile::Links::kRefuse) {
  if (file_.size() == listed.bytes) return;
  throw Damage("{}: has {} bytes, the manifest says {}", file_.path(), file_.size(), listed.bytes);
}

int64_t CheckedFile::begin_of(int64_t block) const { return block * kHashedBlock; }
int64_t CheckedFile::end_of(int64_t block) const {
  return std::min(listed_.bytes, (block + 1) * kHashedBlock);
}

void CheckedFile::read_block(int64_t block, std::span<std::byte> into) const {
  file_.read(begin_of(block), into);
  const size_t at = static_cast<size_t>(block) * kHashDigits;
  if (listed_.blocks.compare(at, kHashDigits, hash_of(into)) == 0) return;
  throw Damage("{}: is damaged: bytes {} to {} do not have the manifest's hash", file_.path(),
               begin_of(block), end_of(block) - 1);
}

Manifest::File describe_file(const std::string& folder, const std::string& name) {
  const RegularFile file(folder + "/" + name, RegularFile::Links::kRefuse);
  std::vector<std::string> hashes(static_cast<size_t>(hashed_blocks(file.size())));
  each_block(file.size(), [&](int64_t block, std::span<std::byte> bytes) {
    file.read(block * kHashedBlock, bytes);
    hashes[static_cast<size_t>(block)] = hash_of(bytes);
  });
  Manifest::File described{name, file.size(), ""};
  for (const std::string& hash : hashes) described.blocks += hash;
  return described;
}

void check_file(const std::string& folder, const Manifest::File& listed) {
  const CheckedFile file(folder, listed);
  each_block(listed.bytes,
             [&](int64_t block, std::span<std::byte> bytes) { file.read_block(block, bytes); });
}

std::string content_of(const std::string& folder, const Manifest::File& listed) {
  const CheckedFile file(folder, listed);
  std::string content(static_cast<size_t>(listed.bytes), '\0');
  const auto bytes = std::as_writable_bytes(std::span(content));
  for (int64_t block = 0; block < hashed_blocks(listed.bytes); ++block) {
    const int64_t begin = file.begin_of(block);
    file.read_block(block, bytes.subspan(static_cast<size_t>(begin),
                                         static_cast<size_t>(file.end_of(block) - begin)));
  }
  return content;
}

}  // namespace weft
