#include "tests/support/vgpu/host/fat_binary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

// The layout is not documented by NVIDIA; it was read off nvcc 13.0's output.
namespace vgpu {
namespace {

struct Wrapper {
  uint32_t magic, version;
  const char* data;
};
struct Header {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};
struct Entry {
  uint16_t kind, attributes;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t unused[3];
  uint32_t architecture;
};

constexpr uint32_t kWrapperMagic = 0x466243b1, kHeaderMagic = 0xba55ed50;
constexpr uint16_t kPtx = 1, kMachineCode = 2;

}  // namespace

FatBinary FatBinary::read(const void* wrapper) {
  FatBinary binary;
  Wrapper w;
  std::memcpy(&w, wrapper, sizeof w);
  if (w.magic != kWrapperMagic) return binary;
  Header header;
  std::memcpy(&header, w.data, sizeof header);
  if (header.magic != kHeaderMagic) return binary;
  for (uint64_t at = 0; at + sizeof(Entry) <= header.bytes;) {
    Entry entry;
    std::memcpy(&entry, w.data + header.header_bytes + at, sizeof entry);
    if (entry.kind == kPtx || entry.kind == kMachineCode) {
      binary.images.push_back({entry.kind == kPtx, static_cast<int>(entry.architecture)});
    }
    at += entry.header_bytes + entry.bytes;
  }
  return binary;
}

bool FatBinary::runs_on(int architecture) const {
  return std::any_of(images.begin(), images.end(), [&](const Image& image) {
    return image.architecture <= architecture &&
           (image.is_ptx || image.architecture / 10 == architecture / 10);
  });
}

std::string FatBinary::list() const {
  std::string text;
  for (const Image& image : images) {
    text += fmt::format("{}{}_{}", text.empty() ? "" : ", ", image.is_ptx ? "compute" : "sm",
                        image.architecture);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace vgpu
