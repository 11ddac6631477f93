#include <algorithm>

#include "core/thread_pool.h"
#include "parallel/boxes.h"
#include "parallel/checkpoint.h"
#include "parallel/checkpoint_folder.h"

namespace weft {

// A box that lies in a slice of a file and in a tensor in memory.
struct CheckpointReader::Copy {
  const Manifest::Piece* piece;
  Shape offset;  // in the slice
  BoxIn to;
  Shape extent;
};

CheckpointReader::CheckpointReader(const FoundCheckpoint& from) : from_(from) {
  for (const Manifest::Piece& piece : from.manifest.pieces) pieces_[piece.tensor].push_back(&piece);
}

const std::vector<const Manifest::Piece*>& CheckpointReader::pieces_of(const std::string& tensor,
                                                                       const Shape& global) const {
  const auto found = pieces_.find(tensor);
  if (found == pieces_.end()) throw ConfigError("{}: holds no {}", from_.path, tensor);
  const Shape& there = found->second.front()->global;
  if (!(there == global)) {
    throw ConfigError("{}: {} is {}, the model's is {}", from_.path, tensor, there, global);
  }
  return found->second;
}

void CheckpointReader::expect(const std::string& tensor, const Shape& global) const {
  pieces_of(tensor, global);
}

std::vector<CheckpointReader::Copy> CheckpointReader::list_copies(
    std::span<const SavedTensor> into) const {
  std::vector<Copy> copies;
  for (const SavedTensor& t : into) {
    for (size_t i = 0; i < t.slices.size(); ++i) {
      const Slice& wanted = t.slices[i];
      const Shape start = local_offset(t.slices, i);
      for (const Manifest::Piece* piece : pieces_of(t.name, t.global)) {
        const std::optional<Slice> both = intersection(wanted, piece->slice);
        if (!both) continue;
        copies.push_back({piece,
                          minus(both->offset, piece->slice.offset),
                          {static_cast<char*>(t.local.raw()), t.local.shape(),
                           plus(start, minus(both->offset, wanted.offset))},
                          both->extent});
      }
    }
  }
  return copies;
}

const char* CheckpointReader::bytes_of_piece(const Manifest::Piece& piece) {
  auto file = files_.find(piece.file);
  if (file == files_.end()) {
    file = files_.emplace(piece.file, MappedFile(from_.path + "/" + piece.file)).first;
  }
  WEFT_CHECK(piece.position + bytes_of(piece) <= file->second.size(),
             "{} became shorter while it was read", file->second.path());
  return reinterpret_cast<const char*>(file->second.data()) + piece.position;
}

void CheckpointReader::run_copies(const std::vector<Copy>& copies) {
  constexpr int64_t kBlock = 1 << 20;  // elements, roughly: what one thread copies at a time
  struct Block {
    ConstBoxIn from;
    BoxIn to;
    Shape extent;
  };
  std::vector<Block> blocks;
  for (const Copy& c : copies) {
    const Block all{{bytes_of_piece(*c.piece), c.piece->slice.extent, c.offset}, c.to, c.extent};
    const int64_t rows = c.extent.dims() == 0 ? 1 : c.extent[0];
    const int64_t at_once = std::max<int64_t>(1, kBlock / (c.extent.elements() / rows));
    for (int64_t row = 0; row < rows; row += at_once) {
      blocks.push_back(all);
      if (rows == 1) continue;
      blocks.back().from.offset[0] += row;
      blocks.back().to.offset[0] += row;
      blocks.back().extent[0] = std::min(at_once, rows - row);
    }
  }
  const auto count = std::ssize(blocks);
  ThreadPool crew(static_cast<int>(std::clamp<int64_t>(count / 4, 1, available_cores())));
  crew.run(count, [&](int64_t i) {
    const Block& b = blocks[static_cast<size_t>(i)];
    copy_box(b.from, b.to, b.extent);
  });
}

void CheckpointReader::read(std::span<const SavedTensor> into) { run_copies(list_copies(into)); }

void CheckpointReader::read_and_check(Share share, std::span<const SavedTensor> into) {
  std::vector<Copy> copies = list_copies(into);
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) {
    return std::tie(a.piece->file, a.piece->position) < std::tie(b.piece->file, b.piece->position);
  });
  const std::vector<Manifest::File>& files = from_.manifest.files;
  for (size_t f = 0; f < files.size(); ++f) {
    if (!share.has(f)) continue;
    std::vector<std::pair<const Manifest::Piece*, BoxStream>> streams;  // by position
    for (const Copy& c : copies) {
      if (c.piece->file != files[f].name) continue;
      streams.emplace_back(c.piece, BoxStream(c.piece->slice.extent, c.offset, c.to, c.extent));
    }
    auto first = streams.begin();  // whose slice has not gone by
    check_file(from_.path, files[f], [&](int64_t at, std::span<const std::byte> block) {
      const int64_t end = at + std::ssize(block);
      for (auto s = first; s != streams.end() && s->first->position < end; ++s) {
        const int64_t begin = s->first->position, last = begin + bytes_of(*s->first);
        const int64_t from = std::max(at, begin), to = std::min(end, last);
        if (from >= to) continue;
        s->second.feed(from - begin, block.subspan(static_cast<size_t>(from - at),
                                                   static_cast<size_t>(to - from)));
      }
      while (first != streams.end() && first->first->position + bytes_of(*first->first) <= end) {
        ++first;
      }
    });
  }
}

void CheckpointReader::read_rest(Share share, std::span<const SavedTensor> into) {
  std::map<std::string, bool> done;
  const std::vector<Manifest::File>& files = from_.manifest.files;
  for (size_t f = 0; f < files.size(); ++f) done[files[f].name] = share.has(f);
  std::vector<Copy> copies = list_copies(into);
  std::erase_if(copies, [&](const Copy& c) { return done.at(c.piece->file); });
  run_copies(copies);
}

void load_tensors(const FoundCheckpoint& from, const std::vector<SavedTensor>& into) {
  CheckpointReader reader(from);
  for (const SavedTensor& t : into) reader.expect(t.name, t.global);
  reader.read(into);
}

}  // namespace weft
