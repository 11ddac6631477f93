#include "parallel/checkpoint_write.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/hash.h"
#include "core/hdf5.h"
#include "core/mapped_file.h"
#include "core/new_file.h"
#include "parallel/boxes.h"
#include "parallel/checkpoint_folder.h"
#include "parallel/checkpoint_parts.h"

namespace weft {
namespace {

constexpr int64_t kBlock = 8 << 20;  // bytes between two hints to start writing to the disk

// A file that HDF5 has laid out, filled in by us.
class Filler {
 public:
  explicit Filler(std::string path) : path_(std::move(path)) {
    fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd_ < 0) fail("opened");
    // Asks for all the room at once: a disk without it says so before anything is written.
    const off_t size = lseek(fd_, 0, SEEK_END);
    if (size > 0 && fallocate(fd_, 0, 0, size) != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
      fail("given its room");
    }
  }
  ~Filler() {
    if (fd_ >= 0) close(fd_);
  }
  Filler(const Filler&) = delete;
  Filler& operator=(const Filler&) = delete;

  void write(int64_t position, const char* data, int64_t bytes) {
    while (bytes > 0) {
      const ssize_t done =
          pwrite(fd_, data, static_cast<size_t>(std::min(bytes, kBlock)), position);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail("written");
      sync_file_range(fd_, position, done, SYNC_FILE_RANGE_WRITE);  // a hint: errors show in fsync
      position += done;
      data += done;
      bytes -= done;
    }
  }

  void finish() {
    if (fsync(fd_) != 0) fail("synced to the disk");
    if (close(std::exchange(fd_, -1)) != 0) fail("closed");
  }

 private:
  [[noreturn]] void fail(const char* what) {
    throw Error("{}: cannot be {}: {}", path_, what, std::strerror(errno));
  }

  std::string path_;
  int fd_ = -1;
};

// Boxes of one tensor stand in a folder of its name, one alone carries the name itself.
std::vector<Manifest::Piece> list_pieces(const std::string& file,
                                         const std::vector<SavedTensor>& tensors) {
  std::map<std::string, size_t> boxes, listed;
  for (const SavedTensor& t : tensors) boxes[t.name] += t.slices.size();
  std::vector<Manifest::Piece> pieces;
  for (const SavedTensor& t : tensors) {
    for (const Slice& slice : t.slices) {
      const std::string dataset =
          boxes[t.name] == 1 ? t.name : fmt::format("{}/{}", t.name, listed[t.name]++);
      pieces.push_back({t.name, file, dataset, t.global, slice});
    }
  }
  return pieces;
}

void fill_pieces(Filler& filler, const std::vector<SavedTensor>& tensors, const BringTensor& bring,
                 std::vector<Manifest::Piece>& pieces) {
  auto piece = pieces.begin();
  for (SavedTensor t : tensors) {
    if (bring) bring(t);
    for (size_t i = 0; i < t.slices.size(); ++i, ++piece) {
      const auto* data = static_cast<const char*>(t.local.raw());
      std::vector<char> box;
      if (t.slices.size() > 1) {
        const Shape& extent = piece->slice.extent;
        box.resize(static_cast<size_t>(bytes_of(*piece)));
        copy_box({data, t.local.shape(), local_offset(t.slices, i)},
                 {box.data(), extent, minus(extent, extent)}, extent);
        data = box.data();
      }
      const auto bytes = static_cast<size_t>(bytes_of(*piece));
      piece->hash = hash_of(std::as_bytes(std::span(data, bytes)));
      filler.write(piece->position, data, bytes_of(*piece));
    }
  }
}

void check_what_is_there(const std::string& path, const std::vector<Manifest::Piece>& pieces) {
  const MappedFile file(path);
  for (const Manifest::Piece& p : pieces) {
    const auto at = static_cast<size_t>(p.position), bytes = static_cast<size_t>(bytes_of(p));
    if (at + bytes > file.bytes().size() || hash_of(file.bytes().subspan(at, bytes)) != p.hash) {
      throw Error("{}: reads back other bytes than were written ({})", path, p.tensor);
    }
  }
}

std::string part_file(int rank) { return rank_file(rank) + ".part"; }

}  // namespace

Manifest write_part(const std::string& folder, int rank, int64_t step,
                    const std::vector<SavedTensor>& tensors, const BringTensor& bring) {
  Manifest part;
  if (tensors.empty()) return part;
  const std::string file = rank_file(rank), path = folder + "/" + file;
  part.pieces = list_pieces(file, tensors);
  std::vector<Hdf5Dataset> datasets;
  for (const Manifest::Piece& p : part.pieces) datasets.push_back({p.dataset, p.slice.extent});
  const std::vector<int64_t> positions = create_hdf5(path, datasets);
  for (size_t i = 0; i < positions.size(); ++i) part.pieces[i].position = positions[i];
  Filler filler(path);
  fill_pieces(filler, tensors, bring, part.pieces);
  save_drill(rank, step, SaveMoment::kWritten);
  filler.finish();
  check_what_is_there(path, part.pieces);
  part.files.push_back(describe_file(folder, file));
  return part;
}

void write_described_part(const std::string& folder, int rank, int64_t step,
                          const std::vector<SavedTensor>& tensors) {
  const std::string text = parts_to_text(write_part(folder, rank, step, tensors));
  NewFile description(folder + "/" + part_file(rank));
  description.write(text.data(), static_cast<int64_t>(text.size()));
  description.finish();
  save_drill(rank, step, SaveMoment::kSynced);
}

void collect_parts(const std::string& folder, int ranks, Manifest& manifest) {
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = folder + "/" + part_file(rank);
    {
      const MappedFile file(path);
      add_parts({reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())},
                manifest);
    }
    std::filesystem::remove(path);
  }
}

}  // namespace weft
