#include "parallel/checkpoint/checkpoint_parts.h"

#include <fmt/ranges.h>

#include <sstream>

// One line per file and piece; names hold no white space.
//   file NAME BYTES BLOCKS
//   piece TENSOR FILE DATASET POSITION HASH DIMS GLOBAL... OFFSET... EXTENT...
namespace weft {
namespace {

Shape read_shape(std::istream& in, int dims) {
  Shape shape;
  for (int i = 0; i < dims; ++i) {
    int64_t extent = 0;
    in >> extent;
    shape.append(extent);
  }
  return shape;
}

std::string join(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape.begin(), shape.end(), " "));
}

}  // namespace

std::string parts_to_text(const Manifest& part) {
  std::string text;
  for (const Manifest::File& f : part.files)
    text += fmt::format("file {} {} {}\n", f.name, f.bytes, f.blocks);
  for (const Manifest::Piece& p : part.pieces) {
    text += fmt::format("piece {} {} {} {} {} {} {} {} {}\n", p.tensor, p.file, p.dataset,
                        p.position, p.hash, p.global.dims(), join(p.global), join(p.slice.offset),
                        join(p.slice.extent));
  }
  return text;
}

void add_parts(const std::string& text, Manifest& whole) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind == "file") {
      Manifest::File& f = whole.files.emplace_back();
      in >> f.name >> f.bytes >> f.blocks;
    } else {
      Manifest::Piece& p = whole.pieces.emplace_back();
      int dims = 0;
      in >> p.tensor >> p.file >> p.dataset >> p.position >> p.hash >> dims;
      p.global = read_shape(in, dims);
      p.slice.offset = read_shape(in, dims);
      p.slice.extent = read_shape(in, dims);
    }
    WEFT_CHECK(!in.fail(), "a rank described a part of a checkpoint as '{}'", line);
  }
}

}  // namespace weft
