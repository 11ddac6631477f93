#include "core/files/hdf5.h"

#include <fcntl.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/files/file_descriptor.h"

namespace weft {
namespace {

// The innermost message of HDF5's error stack.
std::string last_error() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned depth, const H5E_error2_t* error, void* out) -> herr_t {
        if (depth == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
        return 0;
      },
      &text);
  // "file write failed: time = ..., errno = 5, error message = 'Input/output error', buf = ..."
  constexpr std::string_view kTime = ": time = ", kReason = "error message = '";
  const size_t time = text.find(kTime), reason = text.find(kReason);
  if (time != std::string::npos && reason != std::string::npos) {
    const size_t from = reason + kReason.size();
    text = text.substr(0, time) + ": " + text.substr(from, text.find('\'', from) - from);
  }
  return text.empty() ? "no further word from HDF5" : text;
}

template <class Result>
Result check_h5(Result result, const std::string& path, const std::string& what) {
  if (result < 0) throw Error("{}: {}: {}", path, what, last_error());
  return result;
}

class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }
  hid_t release() { return std::exchange(id_, -1); }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void prepare_library() {
  // Once a file could not be closed, the library's own end of the program would crash.
  static const herr_t stays = H5dont_atexit();
  static_cast<void>(stays);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // errors are ours to tell
  H5PLset_loading_state(0);                     // a file may not make the library load code
}

// Plain files, whatever the environment says.
Handle plain_access() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_sec2(access);
  return {access.release(), H5Pclose};
}

std::array<hsize_t, Shape::kMaxDims> sizes(const Shape& shape) {
  std::array<hsize_t, Shape::kMaxDims> out{};
  for (int i = 0; i < shape.dims(); ++i) {
    out[static_cast<size_t>(i)] = static_cast<hsize_t>(shape[i]);
  }
  return out;
}

Handle space_of(const Shape& shape) {
  const auto extent = sizes(shape);
  return {shape.dims() == 0 ? H5Screate(H5S_SCALAR)
                            : H5Screate_simple(shape.dims(), extent.data(), nullptr),
          H5Sclose};
}

// A file that nobody else sees, in memory where the system has such a place.
struct Scratch {
  Scratch() {
    for (const std::string& folder : {std::string("/dev/shm"), temporary_folder()}) {
      path = folder + "/weft-hdf5-XXXXXX";
      fd = mkostemp(path.data(), O_CLOEXEC);
      if (fd >= 0) return;
    }
  }
  ~Scratch() {
    if (fd < 0) return;
    sys::close(fd);
    unlink(path.c_str());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  static std::string temporary_folder() {
    std::error_code none;
    return std::filesystem::temp_directory_path(none).string();
  }

  std::string path;
  int fd = -1;
};

// A new file, laid out by the library in memory, where the places of data that nobody wrote are
// holes and cost nothing. A library whose disk is full in the middle of closing a file cannot be
// used any more, not even to end the program: here it never sees the disk.
class Draft {
 public:
  Draft(std::string path, int64_t data) : path_(std::move(path)) {
    if (scratch_.fd < 0) fail("laid out");
    struct rlimit most {};
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
        most.rlim_cur < static_cast<rlim_t>(data + kOverhead)) {
      throw Error("{}: takes {} bytes, and files may not have more than {} here (ulimit -f)", path_,
                  data + kOverhead, most.rlim_cur);
    }
    const Handle access = plain_access();
    // Large datasets start at a page, so that they are written and mapped in whole pages.
    H5Pset_alignment(access, 1 << 20, 4096);
    file_ = check_h5(H5Fcreate(scratch_.path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), path_,
                     "laying out the file");
    unlink(scratch_.path.c_str());  // whoever is killed here leaves nothing behind
  }
  ~Draft() {
    if (file_ >= 0) H5Fclose(file_);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  hid_t file() const { return file_; }
  const std::string& path() const { return path_; }

  // Brings the bytes that the library wrote to the disk, holes as holes, and reads them again.
  void finish() {
    check_h5(H5Fclose(std::exchange(file_, -1)), path_, "laying out the file");
    const off_t size = sys::seek(scratch_.fd, 0, SEEK_END);
    if (size < 0) fail("laid out");
    FileDescriptor out(sys::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (out.get() < 0) fail("created");
    if (sys::truncate(out.get(), size) != 0) fail("written");
    const std::vector<Run> runs = written(size);
    for (const Run& run : runs) {
      const std::vector<char> bytes = bytes_of(scratch_.fd, run);
      if (!sys::pwrite_all(out.get(), bytes.data(), bytes.size(), run.begin)) fail("written");
    }
    for (const Run& run : runs) {
      if (bytes_of(out.get(), run) == bytes_of(scratch_.fd, run)) continue;
      throw Error("{}: reads back other bytes than were written", path_);
    }
    if (out.close() != 0) fail("closed");
  }

 private:
  static constexpr int64_t kOverhead = 1 << 20;  // HDF5's own bytes, roughly
  static constexpr off_t kLongest = 1 << 20;     // bytes of a run
  struct Run {
    off_t begin, end;
  };

  // Places of the scratch file that are no holes, in order.
  std::vector<Run> written(off_t size) const {
    std::vector<Run> runs;
    for (off_t at = 0; at < size;) {
      const off_t begin = sys::seek(scratch_.fd, at, SEEK_DATA);
      if (begin < 0 && errno == ENXIO) break;  // a hole up to the end
      const off_t end = begin < 0 ? begin : sys::seek(scratch_.fd, begin, SEEK_HOLE);
      if (end < 0) fail("laid out");
      for (at = begin; at < end; at = runs.back().end) {
        runs.push_back({at, std::min(end, at + kLongest)});
      }
    }
    return runs;
  }

  std::vector<char> bytes_of(int file, const Run& run) const {
    std::vector<char> bytes(static_cast<size_t>(run.end - run.begin));
    if (sys::pread(file, bytes.data(), bytes.size(), run.begin) != std::ssize(bytes)) fail("read");
    return bytes;
  }

  [[noreturn]] void fail(const char* what) const {
    throw Error("{}: cannot be {}: {}", path_, what, std::strerror(errno));
  }

  std::string path_;
  Scratch scratch_;
  hid_t file_ = -1;
};

Handle create_dataset(hid_t file, const std::string& path, const std::string& name, hid_t space,
                      hid_t properties) {
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links, 1);
  H5Pset_obj_track_times(properties, 0);  // the same weights make the same file
  return {check_h5(
              H5Dcreate2(file, name.c_str(), H5T_IEEE_F32LE, space, links, properties, H5P_DEFAULT),
              path, "creating " + name),
          H5Dclose};
}

// Refuses links that lead out of the place where they stand, at every step of the name.
void check_links(hid_t file, const std::string& path, const std::string& name) {
  for (size_t end = name.find('/');; end = name.find('/', end + 1)) {
    const std::string part = name.substr(0, end);
    H5L_info_t info;
    check_h5(H5Lget_info(file, part.c_str(), &info, H5P_DEFAULT), path, "looking for " + part);
    if (info.type != H5L_TYPE_HARD) {
      throw ConfigError("{}: {} is a link that leads elsewhere; refused", path, part);
    }
    if (end == std::string::npos) return;
  }
}

bool has_extents(hid_t set, const Shape& shape) {
  const Handle space(H5Dget_space(set), H5Sclose);
  std::array<hsize_t, H5S_MAX_RANK> extent{};
  if (H5Sget_simple_extent_ndims(space) != shape.dims()) return false;
  if (shape.dims() > 0) H5Sget_simple_extent_dims(space, extent.data(), nullptr);
  for (int i = 0; i < shape.dims(); ++i) {
    if (extent[static_cast<size_t>(i)] != static_cast<hsize_t>(shape[i])) return false;
  }
  return true;
}

void check_dataset(hid_t file, const std::string& path, const Hdf5Expected& expected) {
  const auto& [name, shape] = expected.dataset;
  check_links(file, path, name);
  const Handle set(check_h5(H5Dopen2(file, name.c_str(), H5P_DEFAULT), path, "opening " + name),
                   H5Dclose);
  const Handle properties(H5Dget_create_plist(set), H5Pclose);
  const Handle type(H5Dget_type(set), H5Tclose);
  if (H5Pget_layout(properties) != H5D_CONTIGUOUS || H5Pget_external_count(properties) != 0 ||
      H5Pget_nfilters(properties) != 0) {
    throw ConfigError("{}: {} is not stored plainly inside the file; refused", path, name);
  }
  if (H5Tequal(type, H5T_IEEE_F32LE) <= 0) throw ConfigError("{}: {} is not f32", path, name);
  if (!has_extents(set, shape)) {
    throw ConfigError("{}: {} does not have the extents {}", path, name, shape);
  }
  if (shape.elements() == 0) return;
  if (H5Dget_offset(set) != static_cast<haddr_t>(expected.position)) {
    throw ConfigError("{}: {} does not start at byte {}, where the manifest has it", path, name,
                      expected.position);
  }
}

}  // namespace

bool hdf5_is_threadsafe() {
  hbool_t is = false;
  return H5is_library_threadsafe(&is) >= 0 && is;
}

std::vector<int64_t> create_hdf5(const std::string& path,
                                 const std::vector<Hdf5Dataset>& datasets) {
  prepare_library();
  int64_t bytes = 0;
  for (const Hdf5Dataset& d : datasets) bytes += 4 * d.shape.elements();
  Draft draft(path, bytes);
  std::vector<int64_t> positions;
  for (const Hdf5Dataset& d : datasets) {
    const Handle space = space_of(d.shape);
    const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY);  // the place is known at once
    H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER);
    const Handle set = create_dataset(draft.file(), path, d.name, space, properties);
    const haddr_t at = d.shape.elements() == 0 ? 0 : H5Dget_offset(set);
    if (at == HADDR_UNDEF) throw Error("{}: HDF5 gave {} no place", path, d.name);
    positions.push_back(static_cast<int64_t>(at));
  }
  draft.finish();
  return positions;
}

void create_virtual_hdf5(const std::string& path, const std::vector<VirtualDataset>& datasets) {
  prepare_library();
  Draft draft(path, 0);
  const hid_t file = draft.file();
  for (const VirtualDataset& d : datasets) {
    if (d.shape.dims() == 0) {  // a scalar cannot be virtual: a link to the one there is
      const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
      H5Pset_create_intermediate_group(links, 1);
      check_h5(H5Lcreate_external(d.parts.at(0).file.c_str(), d.parts.at(0).dataset.c_str(), file,
                                  d.name.c_str(), links, H5P_DEFAULT),
               path, "linking " + d.name);
      continue;
    }
    const Handle space = space_of(d.shape);
    const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    for (const Hdf5Part& part : d.parts) {
      if (part.extent.elements() == 0) continue;
      const Handle source = space_of(part.extent);
      const auto offset = sizes(part.offset), extent = sizes(part.extent);
      H5Sselect_hyperslab(space, H5S_SELECT_SET, offset.data(), nullptr, extent.data(), nullptr);
      check_h5(H5Pset_virtual(properties, space, part.file.c_str(), part.dataset.c_str(), source),
               path, "joining " + d.name);
    }
    H5Sselect_all(space);
    create_dataset(file, path, d.name, space, properties);
  }
  draft.finish();
}

void check_hdf5(const std::string& path, const std::vector<Hdf5Expected>& expected) {
  prepare_library();
  const Handle access = plain_access();
  const Handle file(
      check_h5(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), path, "opening the file"), H5Fclose);
  for (const Hdf5Expected& e : expected) check_dataset(file, path, e);
}

}  // namespace weft
