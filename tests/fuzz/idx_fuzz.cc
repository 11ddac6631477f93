// Any bytes as an .idx, with a small .bin: read or refused.
//
// sources: core/files/system_calls.cc core/base/nearest.cc
// sources: core/data/indexed_dataset.cc core/files/mapped_file.cc core/files/regular_file.cc
// sources: core/files/new_file.cc core/base/error.cc core/files/hash.cc
// libraries: -lfmt -lxxhash
// seeds: tests/fuzz/seeds/idx
#include <fstream>

#include "core/base/error.h"
#include "core/data/indexed_dataset.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchFile scratch("x.idx");
  static const std::string prefix = scratch.path().substr(0, scratch.path().size() - 4);
  static const bool made =
      (std::ofstream(prefix + ".bin", std::ios::binary) << std::string(64, '\1')).good();
  if (!made) std::abort();
  scratch.put(data, size);
  try {
    const weft::IndexedDataset dataset(prefix);
    for (int64_t d = 0; d < std::min<int64_t>(dataset.documents(), 100); ++d) dataset.read(d);
    dataset.find_token_beyond(257);
  } catch (const weft::ConfigError&) {
  }
  return 0;
}
