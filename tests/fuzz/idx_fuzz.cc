// Any bytes as an .idx, beside a small .bin: read or refused.
//
// sources: core/indexed_dataset.cc core/mapped_file.cc core/regular_file.cc core/new_file.cc core/error.cc
// sources: core/hash.cc
// libraries: -lfmt -lxxhash
// seeds: tests/fuzz/seeds/idx
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/indexed_dataset.h"

namespace {

struct Folder {
  Folder() {
    if (access("/dev/shm", W_OK) == 0) path = "/dev/shm/weft-fuzz-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) std::abort();
    std::ofstream(path + "/x.bin", std::ios::binary) << std::string(64, '\1');
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path = "/tmp/weft-fuzz-XXXXXX";
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  std::ofstream(folder.path + "/x.idx", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const weft::IndexedDataset dataset(folder.path + "/x");
    for (int64_t d = 0; d < std::min<int64_t>(dataset.documents(), 100); ++d) dataset.read(d);
    dataset.find_token_beyond(257);
  } catch (const weft::ConfigError&) {
  }
  return 0;
}
