#include "parallel/checkpoint.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>

#include "core/hash.h"
#include "core/hdf5.h"
#include "core/mapped_file.h"
#include "core/new_file.h"
#include "parallel/agree.h"
#include "parallel/checkpoint_parts.h"
#include "parallel/self_comm.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr const char* kManifest = "manifest.json";

std::string step_name(int64_t step) { return fmt::format("step-{:09}", step); }

void sync_path(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int failure = errno;
  if (fd >= 0) close(fd);
  if (!synced) throw Error("{}: cannot be synced to the disk: {}", path, std::strerror(failure));
}

// The dim along which a parameter's boxes are stacked in its local tensor.
int stacked_dim(const std::vector<Slice>& slices) {
  for (int dim = 0; slices.size() > 1 && dim < slices[0].offset.dims(); ++dim) {
    if (slices[0].offset[dim] != slices[1].offset[dim]) return dim;
  }
  return 0;
}

// Where box `index` starts in the local tensor.
Shape local_offset(const std::vector<Slice>& slices, size_t index) {
  Shape offset = slices[index].extent;
  for (int dim = 0; dim < offset.dims(); ++dim) offset[dim] = 0;
  const int dim = stacked_dim(slices);
  for (size_t i = 0; i < index; ++i) offset[dim] += slices[i].extent[dim];
  return offset;
}

// The box of `extent` at `offset` of a contiguous tensor, copied out row by row.
std::vector<float> copy_box(const Tensor& from, const Shape& offset, const Shape& extent) {
  std::vector<float> out(static_cast<size_t>(extent.elements()));
  const int64_t width = extent.dims() == 0 ? 1 : extent.back();
  for (int64_t row = 0; row * width < extent.elements(); ++row) {
    int64_t rest = row, at = 0, stride = 1;
    for (int dim = extent.dims() - 1; dim >= 0; --dim) {
      const bool last = dim == extent.dims() - 1;
      at += (offset[dim] + (last ? 0 : rest % extent[dim])) * stride;
      if (!last) rest /= extent[dim];
      stride *= from.shape()[dim];
    }
    std::copy_n(from.data<float>() + at, width, out.data() + row * width);
  }
  return out;
}

void check_room(const std::string& folder, const std::vector<SavedTensor>& tensors) {
  int64_t needed = 16 << 20;  // metadata, manifest
  for (const SavedTensor& t : tensors) needed += t.local.bytes();
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return;
  const auto room = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  if (room < needed) {
    throw Error("{}: a checkpoint takes {} bytes, the disk has {} left; nothing was changed",
                folder, needed, room);
  }
}

Manifest::File describe(const std::string& folder, const std::string& name) {
  const MappedFile file(folder + "/" + name);
  return {name, file.size(), hash_of(file.bytes())};
}

std::vector<fs::path> published(const std::string& folder) {
  std::vector<fs::path> found;
  if (!fs::is_directory(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("step-")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void prune(const std::string& folder, int64_t keep) {
  if (keep <= 0) return;
  const std::vector<fs::path> all = published(folder);
  for (size_t i = 0; i + static_cast<size_t>(keep) < all.size(); ++i) fs::remove_all(all[i]);
}

// Boxes of one tensor stand in a folder of its name, one alone carries the name itself.
void write_tensors(const std::string& folder, const std::string& file,
                   const std::vector<SavedTensor>& tensors, Manifest& manifest) {
  std::map<std::string, size_t> boxes, written;
  for (const SavedTensor& t : tensors) boxes[t.name] += t.slices.size();
  Hdf5Writer writer(folder + "/" + file);
  for (const SavedTensor& t : tensors) {
    for (size_t i = 0; i < t.slices.size(); ++i) {
      const Slice& slice = t.slices[i];
      const std::string dataset =
          boxes[t.name] == 1 ? t.name : fmt::format("{}/{}", t.name, written[t.name]++);
      if (t.slices.size() == 1) {
        writer.write(dataset, t.local);
      } else {
        const std::vector<float> box = copy_box(t.local, local_offset(t.slices, i), slice.extent);
        writer.write(dataset, {box.data(),
                               slice.extent,
                               slice.extent.dims() == 0 ? 1 : slice.extent.back(),
                               DType::kF32,
                               {}});
      }
      manifest.pieces.push_back({t.name, file, dataset, t.global, slice});
    }
  }
  writer.close();
}

// The manifest, last of all, and the name under which others find it.
void publish(const std::string& beside, const std::string& target, const Manifest& state) {
  const std::string text = to_json(state);
  NewFile manifest(beside + "/" + kManifest);
  manifest.write(text.data(), static_cast<int64_t>(text.size()));
  manifest.finish();
  sync_path(beside);
  fs::remove_all(target);  // a run that came this far before and started again from an older one
  fs::rename(beside, target);
  sync_path(fs::path(target).parent_path().string());
}

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())};
}

// The common part of two boxes of one tensor; nothing when there is none.
std::optional<Slice> intersection(const Slice& a, const Slice& b) {
  Slice both = a;
  for (int dim = 0; dim < a.offset.dims(); ++dim) {
    const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
    const int64_t end = std::min(a.offset[dim] + a.extent[dim], b.offset[dim] + b.extent[dim]);
    if (begin >= end) return std::nullopt;
    both.offset[dim] = begin;
    both.extent[dim] = end - begin;
  }
  return both;
}

Shape minus(Shape a, const Shape& b) {
  for (int dim = 0; dim < a.dims(); ++dim) a[dim] -= b[dim];
  return a;
}

Shape plus(Shape a, const Shape& b) {
  for (int dim = 0; dim < a.dims(); ++dim) a[dim] += b[dim];
  return a;
}

}  // namespace

std::string save_checkpoint(const std::string& folder, Manifest state,
                            const std::vector<SavedTensor>& tensors, int64_t keep) {
  Ledger ledger;
  Pool pool(ledger);
  ThreadPool thread(1);
  Exec exec{thread, pool, chosen_isa(), {}};
  SelfComm self;
  return save_checkpoint(exec, self, folder, std::move(state), tensors, keep);
}

std::string save_checkpoint(Exec& exec, Communicator& world, const std::string& folder,
                            Manifest state, const std::vector<SavedTensor>& tensors, int64_t keep) {
  const bool first = world.rank() == 0;
  const std::string target = folder + "/" + step_name(state.step);
  const std::string beside = folder + "/.writing-" + step_name(state.step);
  try {
    if (first) {
      fs::create_directories(folder);
      fs::remove_all(beside);
      fs::create_directory(beside);
    }
    world.barrier();
    check_room(folder, tensors);
    Manifest mine;
    if (!tensors.empty()) {
      const std::string file = fmt::format("rank-{:05}.h5", world.rank());
      write_tensors(beside, file, tensors, mine);
      sync_path(beside + "/" + file);
      mine.files.push_back(describe(beside, file));
    }
    for (const std::string& part : gather_texts(exec, world, parts_to_text(mine)))
      add_parts(part, state);
    if (first) publish(beside, target, state);
  } catch (...) {
    std::error_code ignored;
    if (first) fs::remove_all(beside, ignored);
    throw;
  }
  if (first) prune(folder, keep);
  world.barrier();
  return target;
}

FoundCheckpoint read_checkpoint(const std::string& path) {
  const std::string manifest_path = path + "/" + kManifest;
  return {path, manifest_from_json(read_text(manifest_path), manifest_path)};
}

FoundCheckpoint verify_checkpoint(const std::string& path) {
  FoundCheckpoint found = read_checkpoint(path);
  for (const Manifest::File& file : found.manifest.files) {
    const Manifest::File real = describe(path, file.name);
    if (real.bytes != file.bytes) {
      throw ConfigError("{}/{}: has {} bytes, the manifest says {}", path, file.name, real.bytes,
                        file.bytes);
    }
    if (real.hash != file.hash) {
      throw ConfigError("{}/{}: is damaged: its hash is not the manifest's", path, file.name);
    }
  }
  return found;
}

std::optional<FoundCheckpoint> newest_checkpoint(
    const std::string& folder, const std::function<void(const std::string&)>& report) {
  std::vector<fs::path> all = published(folder);
  std::reverse(all.begin(), all.end());
  for (const fs::path& path : all) {
    try {
      return verify_checkpoint(path.string());
    } catch (const std::exception& damage) {
      report(damage.what());
    }
  }
  if (!all.empty()) throw Error("{}: none of its {} checkpoints is whole", folder, all.size());
  return std::nullopt;
}

void load_tensors(const FoundCheckpoint& from, const std::vector<SavedTensor>& into) {
  std::map<std::string, std::vector<const Manifest::Piece*>> by_tensor;
  for (const Manifest::Piece& piece : from.manifest.pieces)
    by_tensor[piece.tensor].push_back(&piece);
  std::map<std::string, std::unique_ptr<Hdf5Reader>> files;  // opened only when needed
  for (const SavedTensor& t : into) {
    const auto found = by_tensor.find(t.name);
    if (found == by_tensor.end()) throw ConfigError("{}: holds no {}", from.path, t.name);
    if (!(found->second.front()->global == t.global)) {
      throw ConfigError("{}: {} is {}, the model's is {}", from.path, t.name,
                        found->second.front()->global, t.global);
    }
    for (size_t i = 0; i < t.slices.size(); ++i) {
      for (const Manifest::Piece* piece : found->second) {
        const std::optional<Slice> both = intersection(t.slices[i], piece->slice);
        if (!both) continue;
        auto& file = files[piece->file];
        if (!file) file = std::make_unique<Hdf5Reader>(from.path + "/" + piece->file);
        const Shape to = plus(local_offset(t.slices, i), minus(both->offset, t.slices[i].offset));
        file->read(piece->dataset, piece->slice.extent,
                   {minus(both->offset, piece->slice.offset), both->extent}, to, t.local);
      }
    }
  }
}

}  // namespace weft
