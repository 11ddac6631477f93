// index.h5 in other programs: the HDF5 library follows virtual datasets and reads every tensor
// whole.
#include <gtest/gtest.h>
#include <hdf5.h>

#include <map>

#include "core/host_access.h"
#include "parallel/checkpoint/checkpoint_saver.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/layout/layout.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

struct Read {
  std::vector<hsize_t> shape;
  std::vector<float> values;
};

// Every dataset of a file by its full name, through the C library alone.
std::map<std::string, Read> datasets_of(const std::string& path) {
  std::map<std::string, Read> all;
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  EXPECT_GE(file, 0);
  const auto visit = [](hid_t from, const char* name, const H5O_info_t* info, void* out) -> herr_t {
    if (info->type != H5O_TYPE_DATASET) return 0;
    const hid_t dataset = H5Dopen(from, name, H5P_DEFAULT), space = H5Dget_space(dataset);
    Read read;
    read.shape.resize(static_cast<size_t>(H5Sget_simple_extent_ndims(space)));
    H5Sget_simple_extent_dims(space, read.shape.data(), nullptr);
    read.values.resize(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
    EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, read.values.data()),
              0);
    (*static_cast<std::map<std::string, Read>*>(out))[name] = std::move(read);
    H5Sclose(space);
    H5Dclose(dataset);
    return 0;
  };
  EXPECT_GE(H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, visit, &all), 0);
  H5Fclose(file);
  return all;
}

// A rank's boxes of a matrix whose element (row, column) is 100 row + column.
SavedTensor boxes(Exec& exec, const std::string& name, const Shape& global,
                  std::vector<Slice> slices) {
  int64_t elements = 0;
  for (const Slice& s : slices) elements += s.extent.elements();
  const Shape local =
      slices.size() == 1 ? slices[0].extent : Shape{elements / global[1], global[1]};
  SavedTensor t{name, global, std::move(slices), exec.empty(local)};
  float* out = host<float>(t.local);
  for (const Slice& s : t.slices) {
    for (int64_t r = 0; r < s.extent[0]; ++r) {
      for (int64_t c = 0; c < s.extent[1]; ++c) {
        *out++ = static_cast<float>(100 * (s.offset[0] + r) + s.offset[1] + c);
      }
    }
  }
  return t;
}

TEST(IndexFile, ShowsEveryTensorWholeToTheHdf5Library) {
  constexpr int kRanks = 3;
  const ScratchFolder folder;
  std::string path;
  run_ranks(kRanks, [&](ThreadComm& world, Exec& exec) {
    const int rank = world.rank();
    const IndexRange rows = even_part(11, rank, kRanks), half = even_part(4, rank, kRanks);
    std::vector<SavedTensor> mine = {
        boxes(exec, "parameters/rows", {11, 3}, {{{rows.begin, 0}, {rows.size(), 3}}}),
        boxes(exec, "parameters/columns", {5, 9}, {{{0, 3 * rank}, {5, 3}}}),
        // Stacked matrices cut apart: two boxes of one tensor in each file.
        boxes(exec, "adam/m/stacked", {8, 2},
              {{{half.begin, 0}, {half.size(), 2}}, {{4 + half.begin, 0}, {half.size(), 2}}})};
    if (rank == 1) mine.push_back(boxes(exec, "adam/v/on_one_rank", {2, 2}, {{{0, 0}, {2, 2}}}));
    CheckpointSaver saver(exec, world.hosts(),
                          {.folder = folder / "c", .where = CheckpointSaver::Where::kForeground});
    std::optional<SaveResult> result = saver.begin({.step = 5}, mine);
    if (!result) result = saver.finish();
    ASSERT_EQ(result->failure, "");
    if (rank == 0) path = result->path;
  });
  const std::map<std::string, std::vector<hsize_t>> shapes = {{"parameters/rows", {11, 3}},
                                                              {"parameters/columns", {5, 9}},
                                                              {"adam/m/stacked", {8, 2}},
                                                              {"adam/v/on_one_rank", {2, 2}}};
  // A moved checkpoint stays readable: paths are relative to the index.
  std::filesystem::rename(path, folder / "moved");
  const auto read = datasets_of(folder / "moved/index.h5");
  ASSERT_EQ(read.size(), shapes.size());
  for (const auto& [name, shape] : shapes) {
    ASSERT_TRUE(read.contains(name)) << name;
    EXPECT_EQ(read.at(name).shape, shape) << name;
    for (hsize_t i = 0; i < shape[0] * shape[1]; ++i) {
      EXPECT_EQ(read.at(name).values[i], static_cast<float>(100 * (i / shape[1]) + i % shape[1]))
          << name << " element " << i;
    }
  }
}

}  // namespace
}  // namespace weft::test
