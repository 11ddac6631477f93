// Our files read by the HDF5 library, and hostile files.
#include "core/files/hdf5.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <array>

#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

// Reads a dataset of any layout with the library.
std::vector<float> read_by_library(const std::string& path, const std::string& name, size_t count) {
  std::vector<float> out(count, -1.0f);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t set = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  EXPECT_GE(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()), 0) << name;
  H5Dclose(set);
  H5Fclose(file);
  return out;
}

void fill(const std::string& path, int64_t position, const std::vector<float>& values) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(position);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * 4));
}

TEST(Hdf5, BytesWrittenAtTheirPlacesAreWhatTheLibraryReads) {
  const ScratchFolder folder;
  const std::string path = folder / "a.h5";
  const auto at = create_hdf5(path, {{"adam/m/w", {2, 3}}, {"one", {}}, {"none", {0, 4}}});
  ASSERT_EQ(at.size(), 3u);
  fill(path, at[0], {1, 2, 3, 4, 5, 6});
  fill(path, at[1], {7});
  EXPECT_EQ(read_by_library(path, "adam/m/w", 6), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read_by_library(path, "one", 1), std::vector<float>{7});
  EXPECT_NO_THROW(check_hdf5(path, {{{"adam/m/w", {2, 3}}, at[0]}, {{"none", {0, 4}}, 0}}));
  EXPECT_THROW(create_hdf5(path, {}), Error) << "never over a file that is there";
}

TEST(Hdf5, LargeDatasetsStartAtAPage) {
  const ScratchFolder folder;
  const auto at = create_hdf5(folder / "a.h5", {{"s", {3}}, {"l", {1 << 19}}, {"t", {5}}});
  EXPECT_EQ(at[1] % 4096, 0);
  EXPECT_GE(std::filesystem::file_size(folder / "a.h5"), static_cast<uint64_t>(at[1] + (4 << 19)));
}

TEST(Hdf5, VirtualDatasetsJoinTheBoxesOfOtherFiles) {
  const ScratchFolder folder;
  const auto a = create_hdf5(folder / "a.h5", {{"w/0", {1, 3}}, {"w/1", {1, 1}}, {"one", {}}});
  const auto b = create_hdf5(folder / "b.h5", {{"w", {1, 2}}});
  fill(folder / "a.h5", a[0], {1, 2, 3});
  fill(folder / "a.h5", a[1], {4});
  fill(folder / "a.h5", a[2], {9});
  fill(folder / "b.h5", b[0], {5, 6});
  create_virtual_hdf5(folder / "index.h5", {{"parameters/w",
                                             {2, 3},
                                             {{"a.h5", "w/0", {0, 0}, {1, 3}},
                                              {"a.h5", "w/1", {1, 0}, {1, 1}},
                                              {"b.h5", "w", {1, 1}, {1, 2}}}},
                                            {"one", {}, {{"a.h5", "one", {}, {}}}}});
  EXPECT_EQ(read_by_library(folder / "index.h5", "parameters/w", 6),
            (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read_by_library(folder / "index.h5", "one", 1), std::vector<float>{9});
}

// Each makes a dataset "g/w" that is not a plain [2, 3] of f32 inside the file.
struct Trick {
  const char* name;
  void (*make)(hid_t file, const ScratchFolder& folder);
  const char* said;
};

hid_t make_set(hid_t file, hid_t type, std::vector<hsize_t> shape, hid_t properties) {
  const hid_t group = H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  const hid_t set = H5Dcreate2(group, "w", type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  H5Sclose(space);
  H5Gclose(group);
  H5Dclose(set);
  return set;
}

hid_t properties_of(void (*set)(hid_t)) {
  const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
  set(properties);
  return properties;
}

const std::vector<Trick> kTricks = {
    {"ExternalLink",
     [](hid_t f, const ScratchFolder& folder) {
       create_hdf5(folder / "other.h5", {{"w", {2, 3}}});
       H5Gclose(H5Gcreate2(f, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
       H5Lcreate_external((folder / "other.h5").c_str(), "w", f, "g/w", H5P_DEFAULT, H5P_DEFAULT);
     },
     "leads elsewhere"},
    {"ExternalGroup",
     [](hid_t f, const ScratchFolder& folder) {
       create_hdf5(folder / "other.h5", {{"g/w", {2, 3}}});
       H5Lcreate_external((folder / "other.h5").c_str(), "g", f, "g", H5P_DEFAULT, H5P_DEFAULT);
     },
     "g is a link that leads elsewhere"},
    {"SoftLink",
     [](hid_t f, const ScratchFolder&) {
       H5Gclose(H5Gcreate2(f, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
       H5Lcreate_soft("/g", f, "g/w", H5P_DEFAULT, H5P_DEFAULT);
     },
     "leads elsewhere"},
    {"ExternalStorage",
     [](hid_t f, const ScratchFolder&) {
       make_set(f, H5T_IEEE_F32LE, {2, 3},
                properties_of([](hid_t p) { H5Pset_external(p, "/etc/passwd", 0, 24); }));
     },
     "not stored plainly"},
    {"Virtual",
     [](hid_t f, const ScratchFolder&) {
       make_set(f, H5T_IEEE_F32LE, {2, 3}, properties_of([](hid_t p) {
                  const std::array<hsize_t, 2> shape = {2, 3};
                  const hid_t space = H5Screate_simple(2, shape.data(), nullptr);
                  H5Pset_virtual(p, space, "other.h5", "w", space);
                  H5Sclose(space);
                }));
     },
     "not stored plainly"},
    {"Filter",
     [](hid_t f, const ScratchFolder&) {
       make_set(f, H5T_IEEE_F32LE, {2, 3}, properties_of([](hid_t p) {
                  const std::array<hsize_t, 2> chunk = {2, 3};
                  H5Pset_chunk(p, 2, chunk.data());
                  H5Pset_shuffle(p);
                }));
     },
     "not stored plainly"},
    {"Chunks",
     [](hid_t f, const ScratchFolder&) {
       make_set(f, H5T_IEEE_F32LE, {2, 3}, properties_of([](hid_t p) {
                  const std::array<hsize_t, 2> chunk = {1, 3};
                  H5Pset_chunk(p, 2, chunk.data());
                }));
     },
     "not stored plainly"},
    {"Double",
     [](hid_t f, const ScratchFolder&) {
       make_set(f, H5T_IEEE_F64LE, {2, 3}, H5P_DEFAULT);
     },
     "not f32"},
    {"BigEndian",
     [](hid_t f, const ScratchFolder&) {
       make_set(f, H5T_IEEE_F32BE, {2, 3}, H5P_DEFAULT);
     },
     "not f32"},
    {"OtherExtents",
     [](hid_t f, const ScratchFolder&) {
       make_set(f, H5T_IEEE_F32LE, {3, 2}, H5P_DEFAULT);
     },
     "extents [2, 3]"},
    {"OtherDims",
     [](hid_t f, const ScratchFolder&) { make_set(f, H5T_IEEE_F32LE, {6}, H5P_DEFAULT); },
     "extents [2, 3]"},
    {"OtherPlace",
     [](hid_t f, const ScratchFolder&) {
       make_set(f, H5T_IEEE_F32LE, {2, 3},
                properties_of([](hid_t p) { H5Pset_alloc_time(p, H5D_ALLOC_TIME_EARLY); }));
     },
     "does not start at byte 5"},
    {"Missing", [](hid_t, const ScratchFolder&) {}, "looking for g"},
};

class HostileHdf5 : public testing::TestWithParam<Trick> {};

TEST_P(HostileHdf5, IsRefused) {
  const ScratchFolder folder;
  const hid_t file = H5Fcreate((folder / "a.h5").c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
  GetParam().make(file, folder);
  H5Fclose(file);
  const std::string said = message_of<Error>([&] {
    check_hdf5(folder / "a.h5", {{{"g/w", {2, 3}}, 5}});
  });
  EXPECT_NE(said.find(GetParam().said), std::string::npos) << said;
}

INSTANTIATE_TEST_SUITE_P(All, HostileHdf5, testing::ValuesIn(kTricks),
                         [](const auto& info) { return info.param.name; });

TEST(Hdf5, NeverLoadsPlugins) {
  const ScratchFolder folder;
  create_hdf5(folder / "a.h5", {});
  unsigned allowed = ~0u;
  H5PLget_loading_state(&allowed);
  EXPECT_EQ(allowed, 0u);
}

}  // namespace
}  // namespace weft::test
