#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

// A file, in memory if possible, for readers that need a path.
class ScratchFile {
 public:
  explicit ScratchFile(const char* name) {
    std::string folder =
        access("/dev/shm", W_OK) == 0 ? "/dev/shm/weft-fuzz-XXXXXX" : "/tmp/weft-fuzz-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    folder_ = folder;
    path_ = folder + "/" + name;
  }
  ~ScratchFile() { std::filesystem::remove_all(folder_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }
  void put(const uint8_t* data, size_t size) const {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }

 private:
  std::string folder_, path_;
};
