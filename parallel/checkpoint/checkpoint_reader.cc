#include "parallel/checkpoint/checkpoint_reader.h"

#include <algorithm>

#include "core/files/hash.h"
#include "core/host_access.h"
#include "core/threads/thread_pool.h"
#include "parallel/checkpoint/boxes.h"
#include "parallel/checkpoint/checked_file.h"

namespace weft {

struct CheckpointReader::Copy {
  size_t file;
  int64_t position;  // of the slice in it
  BoxCopy box;
};

CheckpointReader::CheckpointReader(const FoundCheckpoint& from, std::function<void()> progress)
    : from_(from), progress_(std::move(progress)) {
  for (const Manifest::Piece& piece : from.manifest.pieces) pieces_[piece.tensor].push_back(&piece);
  for (const auto* list : {&from.manifest.files, &from.manifest.others}) {
    for (const Manifest::File& file : *list) {
      file_of_[file.name] = files_.size();
      files_.push_back(&file);
    }
  }
}

CheckpointReader::~CheckpointReader() = default;

const std::vector<const Manifest::Piece*>& CheckpointReader::pieces_of(
    const std::string& tensor) const {
  const auto found = pieces_.find(tensor);
  if (found == pieces_.end()) throw ConfigError("{}: holds no {}", from_.path, tensor);
  return found->second;
}

Shape CheckpointReader::shape_of(const std::string& tensor) const {
  return pieces_of(tensor).front()->global;
}

void CheckpointReader::expect(const std::string& tensor, const Shape& global) const {
  const Shape there = shape_of(tensor);
  if (there == global) return;
  throw ConfigError("{}: {} is {}, the model's is {}", from_.path, tensor, there, global);
}

std::vector<CheckpointReader::Copy> CheckpointReader::list_copies(
    std::span<const SavedTensor> into) const {
  std::vector<Copy> copies;
  for (const SavedTensor& t : into) {
    expect(t.name, t.global);
    for (size_t i = 0; i < t.slices.size(); ++i) {
      const Slice& wanted = t.slices[i];
      const Shape start = local_offset(t.slices, i);
      for (const Manifest::Piece* piece : pieces_of(t.name)) {
        const std::optional<Slice> both = intersection(wanted, piece->slice);
        if (!both) continue;
        const BoxIn to{static_cast<char*>(host_bytes(t.local)), t.local.shape(),
                       plus(start, minus(both->offset, wanted.offset))};
        copies.push_back({file_of_.at(piece->file), piece->position,
                          BoxCopy(piece->slice.extent, minus(both->offset, piece->slice.offset), to,
                                  both->extent)});
      }
    }
  }
  return copies;
}

CheckpointReader::Blocks CheckpointReader::list_blocks(const std::vector<Copy>& copies) const {
  Blocks blocks;
  for (const Copy& c : copies) {
    const int64_t end = files_[c.file]->bytes - c.position;
    for (int64_t at = 0; at < end;) {
      const BoxCopy::Range next = c.box.within({at, end});
      if (next.empty()) break;
      const int64_t number = (c.position + next.begin) / kHashedBlock;
      blocks[{c.file, number}].push_back(&c);
      at = (number + 1) * kHashedBlock - c.position;
    }
  }
  return blocks;
}

CheckpointReader::OpenFile CheckpointReader::open_file(size_t number) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const CheckedFile> file = open_[number].lock();
  if (!file) {
    file = std::make_shared<CheckedFile>(from_.path, *files_[number]);
    open_[number] = file;
  }
  const auto blocks = static_cast<size_t>(hashed_blocks(files_[number]->bytes));
  return {file, &compared_.try_emplace(number, blocks, '\0').first->second};
}

// What one thread reads with.
struct CheckpointReader::Worker {
  OpenFile open = {};
  size_t number = 0;  // of the open file
  std::unique_ptr<std::byte[]> room = {};

  // One that goes to one place as it stands is read into that place. Of one that was compared
  // before, only what is needed is read.
  void take(int64_t block, const std::vector<const Copy*>& copies) {
    char& compared = (*open.compared)[static_cast<size_t>(block)];
    BoxCopy::Range range{open.file->begin_of(block), open.file->end_of(block)};
    if (compared != 0) range = needed(copies, range);
    std::byte* const place =
        copies.size() == 1 ? copies[0]->box.place_of(in_slice(*copies[0], range)) : nullptr;
    const std::span into(place != nullptr ? place : room.get(),
                         static_cast<size_t>(range.end - range.begin));
    if (compared != 0) {
      open.file->read_known(range.begin, into);
    } else {
      open.file->read_block(block, into);
    }
    compared = 1;
    if (place != nullptr) return;
    for (const Copy* c : copies) c->box.copy(in_slice(*c, range).begin, into);
  }

  static BoxCopy::Range in_slice(const Copy& c, const BoxCopy::Range& of_file) {
    return {of_file.begin - c.position, of_file.end - c.position};
  }
  static BoxCopy::Range needed(const std::vector<const Copy*>& copies, BoxCopy::Range block) {
    BoxCopy::Range range{block.end, block.begin};
    for (const Copy* c : copies) {
      const BoxCopy::Range part = c->box.within(in_slice(*c, block));
      range.begin = std::min(range.begin, c->position + part.begin);
      range.end = std::max(range.end, c->position + part.end);
    }
    return range.empty() ? BoxCopy::Range{block.begin, block.begin} : range;
  }
};

void CheckpointReader::run(const Blocks& blocks) {
  std::vector<const Blocks::value_type*> order;  // neighbours on the disk are neighbours here
  for (const auto& block : blocks) order.push_back(&block);
  ThreadPool crew(threads_for_blocks(std::ssize(order)));
  std::vector<Worker> workers(static_cast<size_t>(crew.size()));
  crew.run_on(std::ssize(order), [&](int64_t i, int thread) {
    const auto& [block, copies] = *order[static_cast<size_t>(i)];
    Worker& me = workers[static_cast<size_t>(thread)];
    if (!me.room) me.room = std::make_unique_for_overwrite<std::byte[]>(kHashedBlock);
    if (!me.open.file || me.number != block.first) {
      me.open = open_file(block.first);
      me.number = block.first;
    }
    me.take(block.second, copies);
    if (thread == 0 && progress_) progress_();
  });
}

void CheckpointReader::read(std::span<const SavedTensor> into) {
  const std::vector<Copy> copies = list_copies(into);
  run(list_blocks(copies));
}

void CheckpointReader::read_and_check(Share share, std::span<const SavedTensor> into) {
  const std::vector<Copy> copies = list_copies(into);
  Blocks blocks = list_blocks(copies);
  // Neighbours: a rank that wrote a file of usual size mostly gets that one.
  int64_t all = 0, number = 0;
  for (const Manifest::File* file : files_) all += hashed_blocks(file->bytes);
  for (size_t file = 0; file < files_.size(); ++file) {
    for (int64_t block = 0; block < hashed_blocks(files_[file]->bytes); ++block, ++number) {
      if (number >= all * share.rank / share.ranks && number < all * (share.rank + 1) / share.ranks)
        blocks[{file, block}];
    }
    if (files_[file]->bytes == 0 && share.rank == 0) open_file(file);
  }
  run(blocks);
}

void load_tensors(const FoundCheckpoint& from, const std::vector<SavedTensor>& into,
                  const std::function<void()>& progress) {
  CheckpointReader reader(from, progress);
  for (const SavedTensor& t : into) reader.expect(t.name, t.global);
  reader.read(into);
}

}  // namespace weft
