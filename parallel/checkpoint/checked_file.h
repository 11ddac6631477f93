#pragma once

#include <span>
#include <string>

#include "core/files/manifest.h"
#include "core/files/regular_file.h"

namespace weft {

// A file of a checkpoint, open for reading: what is read of it is compared with the manifest, block
// by block (core/files/hash.h). Links are refused. Damage where it is not what the manifest says.
class CheckedFile {
 public:
  CheckedFile(const std::string& folder, const Manifest::File& listed);  // which must live longer

  int64_t begin_of(int64_t block) const;
  int64_t end_of(int64_t block) const;
  // One block, compared; from any thread.
  void read_block(int64_t block, std::span<std::byte> into) const;
  // Bytes of blocks that were compared before.
  void read_known(int64_t at, std::span<std::byte> into) const { file_.read(at, into); }

 private:
  const Manifest::File& listed_;
  const RegularFile file_;
};

// What the manifest is to say of a file. On all cores.
Manifest::File describe_file(const std::string& folder, const std::string& name);
// Damage when that is not what it says.
void check_file(const std::string& folder, const Manifest::File& listed);
// All bytes of a small file, compared.
std::string content_of(const std::string& folder, const Manifest::File& listed);

// A crew for so many blocks: one thread where they are few.
int threads_for_blocks(int64_t blocks);

}  // namespace weft
