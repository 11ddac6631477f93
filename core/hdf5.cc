#include "core/hdf5.h"

#include <hdf5.h>

#include <array>

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

void silence_library() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }  // errors are ours to tell

std::array<hsize_t, Shape::kMaxDims> sizes(const Shape& shape) {
  std::array<hsize_t, Shape::kMaxDims> out{};
  for (int i = 0; i < shape.dims(); ++i) out[static_cast<size_t>(i)] = static_cast<hsize_t>(shape[i]);
  return out;
}

Handle space_of(const Shape& shape) {
  const auto extent = sizes(shape);
  return {shape.dims() == 0 ? H5Screate(H5S_SCALAR)
                            : H5Screate_simple(shape.dims(), extent.data(), nullptr),
          H5Sclose};
}

void select(hid_t space, const Box& box, const std::string& path) {
  if (box.extent.dims() == 0) return;
  const auto offset = sizes(box.offset), extent = sizes(box.extent);
  check_h5(H5Sselect_hyperslab(space, H5S_SELECT_SET, offset.data(), nullptr, extent.data(), nullptr),
           path, "selecting a slice");
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

void check_dataset(hid_t set, const std::string& path, const std::string& name, const Shape& shape) {
  const Handle properties(H5Dget_create_plist(set), H5Pclose);
  const Handle type(H5Dget_type(set), H5Tclose);
  const Handle space(H5Dget_space(set), H5Sclose);
  if (H5Pget_layout(properties) != H5D_CONTIGUOUS || H5Pget_external_count(properties) != 0 ||
      H5Pget_nfilters(properties) != 0) {
    throw ConfigError("{}: {} is not stored plainly inside the file; refused", path, name);
  }
  if (H5Tequal(type, H5T_IEEE_F32LE) <= 0) throw ConfigError("{}: {} is not f32", path, name);
  std::array<hsize_t, H5S_MAX_RANK> extent{};
  const int dims = H5Sget_simple_extent_ndims(space);
  bool same = dims == shape.dims();
  if (same && dims > 0) {
    H5Sget_simple_extent_dims(space, extent.data(), nullptr);
    for (int i = 0; i < dims; ++i) {
      same = same && extent[static_cast<size_t>(i)] == static_cast<hsize_t>(shape[i]);
    }
  }
  if (!same) throw ConfigError("{}: {} does not have the extents {}", path, name, shape);
}

}  // namespace

struct Hdf5Writer::Impl {
  std::string path;
  hid_t file = -1;
};

Hdf5Writer::Hdf5Writer(const std::string& path) : impl_(std::make_unique<Impl>()) {
  silence_library();
  impl_->path = path;
  impl_->file = check_h5(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT), path,
                         "creating the file");
}

Hdf5Writer::~Hdf5Writer() {
  if (impl_->file >= 0) H5Fclose(impl_->file);
}

void Hdf5Writer::write(const std::string& name, ConstView data) {
  WEFT_CHECK(data.dtype == DType::kF32 && data.contiguous(), "{} must be f32 and contiguous", name);
  const Handle space = space_of(data.shape);
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links, 1);
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(properties, 0);  // the same weights make the same file
  const Handle set(check_h5(H5Dcreate2(impl_->file, name.c_str(), H5T_IEEE_F32LE, space, links,
                                       properties, H5P_DEFAULT),
                            impl_->path, "creating " + name),
                   H5Dclose);
  if (data.shape.elements() == 0) return;
  check_h5(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data), impl_->path,
           "writing " + name);
}

void Hdf5Writer::close() {
  const hid_t file = std::exchange(impl_->file, -1);
  check_h5(H5Fclose(file), impl_->path, "closing the file");
}

struct Hdf5Reader::Impl {
  std::string path;
  hid_t file = -1;
};

Hdf5Reader::Hdf5Reader(const std::string& path) : impl_(std::make_unique<Impl>()) {
  silence_library();
  impl_->path = path;
  impl_->file = check_h5(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), path, "opening the file");
}

Hdf5Reader::~Hdf5Reader() { H5Fclose(impl_->file); }

void Hdf5Reader::read(const std::string& name, const Shape& shape, const Box& from, const Shape& to,
                      const Tensor& out) const {
  check_links(impl_->file, impl_->path, name);
  const Handle set(check_h5(H5Dopen2(impl_->file, name.c_str(), H5P_DEFAULT), impl_->path,
                            "opening " + name),
                   H5Dclose);
  check_dataset(set, impl_->path, name, shape);
  if (from.extent.elements() == 0) return;
  const Handle file_space(H5Dget_space(set), H5Sclose);
  const Handle memory = space_of(out.shape());
  select(file_space, from, impl_->path);
  select(memory, {to, from.extent}, impl_->path);
  check_h5(H5Dread(set, H5T_NATIVE_FLOAT, memory, file_space, H5P_DEFAULT, out.data<float>()),
           impl_->path, "reading " + name);
}

}  // namespace weft
