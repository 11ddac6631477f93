#pragma once

#include <string>
#include <vector>

#include "core/base/shape.h"

// The little of HDF5 that checkpoints need. The library lays files out and says where the bytes of
// each dataset stand; the bytes themselves are written and read by us, at these places: a full disk
// or a hostile file never meets the library in the middle of something, and threads do not wait for
// its lock. Errors carry HDF5's own text.
namespace weft {

// Whether the library was built with a lock of its own, so that ranks that are threads may call it.
bool hdf5_is_threadsafe();

struct Hdf5Dataset {
  std::string name;  // "adam/m/embed.weight": folders of the name are made
  Shape shape;
};

// A new file of plain f32 datasets (little endian, contiguous) whose bytes are still to be written.
// Returns where in the file each one starts; 0 for an empty one. The file must not exist; the same
// datasets give the same file.
std::vector<int64_t> create_hdf5(const std::string& path, const std::vector<Hdf5Dataset>& datasets);

// One box of a dataset that lies in another file.
struct Hdf5Part {
  std::string file, dataset;  // the file beside this one
  Shape offset, extent;
};
struct VirtualDataset {
  std::string name;
  Shape shape;
  std::vector<Hdf5Part> parts;
};
// A new file whose datasets present boxes of other files as one.
void create_virtual_hdf5(const std::string& path, const std::vector<VirtualDataset>& datasets);

// Checks what readers with HDF5 would meet: hard links all the way, f32 of these extents,
// contiguous inside the file itself without filters, its bytes at this place. ConfigError where it
// is not so.
struct Hdf5Expected {
  Hdf5Dataset dataset;
  int64_t position = 0;
};
void check_hdf5(const std::string& path, const std::vector<Hdf5Expected>& expected);

}  // namespace weft
