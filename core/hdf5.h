#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/shape.h"
#include "core/tensor.h"

// The little of HDF5 that checkpoints need: flat files of plain f32 datasets. What is read is checked before
// it is used: hard links only, contiguous storage inside the file itself, no filters, the expected type and
// extents. Errors carry HDF5's own text.
namespace weft {

// A new file; it must not exist. close() before the file is used: errors of late writes show there.
class Hdf5Writer {
 public:
  explicit Hdf5Writer(const std::string& path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // One f32 dataset; folders of the name ("adam/m/embed.weight") are made.
  void write(const std::string& name, ConstView data);
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A box of a dataset or of a tensor.
struct Box {
  Shape offset, extent;
};

class Hdf5Reader {
 public:
  explicit Hdf5Reader(const std::string& path);
  ~Hdf5Reader();
  Hdf5Reader(const Hdf5Reader&) = delete;
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;

  // Copies box `from` of the dataset `name`, whose extents must be `shape`, to the box of the same extent at
  // `to` of `out` (f32, contiguous).
  void read(const std::string& name, const Shape& shape, const Box& from, const Shape& to,
            const Tensor& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
