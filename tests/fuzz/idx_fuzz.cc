// Any bytes as an .idx, beside a small .bin: read or refused.
//
// sources: core/indexed_dataset.cc core/mapped_file.cc core/new_file.cc core/error.cc core/hash.cc
// libraries: -lfmt -lxxhash
// seeds: tests/fuzz/seeds/idx
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "core/error.h"
#include "core/indexed_dataset.h"

namespace {

std::string folder() {
  static const std::string made = [] {
    std::string pattern = (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/weft-fuzz-XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    std::ofstream(pattern + "/x.bin", std::ios::binary) << std::string(64, '\1');
    std::atexit([] {
      unlink((folder() + "/x.bin").c_str());
      unlink((folder() + "/x.idx").c_str());
      rmdir(folder().c_str());
    });
    return pattern;
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::ofstream(folder() + "/x.idx", std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const weft::IndexedDataset dataset(folder() + "/x");
    for (int64_t d = 0; d < std::min<int64_t>(dataset.documents(), 100); ++d) dataset.read(d);
    dataset.find_token_beyond(257);
  } catch (const weft::ConfigError&) {
  }
  return 0;
}
