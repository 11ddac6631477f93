#include "kernels/matrix/block_sparse.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/matrix/cpu/block_sparse.h"

namespace weft::kernels {
namespace {

void check_values(const BlockTopology& topology, ConstView values, ConstView padded) {
  const BlockTopology::Block& last = topology.blocks.back();
  const auto one_row = [&](ConstView x, int64_t count) {
    return x.contiguous() && x.shape.elements() == count &&
           (x.dtype == DType::kF32 || x.dtype == DType::kI32);
  };
  WEFT_CHECK(one_row(values, last.first + last.rows) && one_row(padded, topology.padded_rows()) &&
                 values.dtype == padded.dtype,
             "block-sparse: {} {} values, {} {} padded ones, expected {} and {}", values.shape,
             name_of(values.dtype), padded.shape, name_of(padded.dtype), last.first + last.rows,
             topology.padded_rows());
}

KernelCall check_product(const char* name, const BlockTopology& topology, ConstView a,
                         const PackedMatrices& b, View c) {
  WEFT_CHECK(a.rows() == topology.padded_rows() && a.width() == b.k() && c.width() == b.n() &&
                 static_cast<int64_t>(topology.offsets.size()) == b.groups() + 1,
             "block-sparse product of {} ({} padded rows, {} groups) with {} of [{}, {}] into {}",
             a.shape, topology.padded_rows(), topology.offsets.size() - 1, b.groups(), b.k(), b.n(),
             c.shape);
  WEFT_CHECK(a.dtype == b.plain().dtype, "block-sparse product of {} with {}", name_of(a.dtype),
             name_of(b.plain().dtype));
  return {.name = name,
          .type = a.dtype,
          .flops = 2 * elements(c) * static_cast<double>(b.k()),
          .read = bytes_of(a, b.plain()),
          .written = bytes_of(c)};
}

}  // namespace

BlockTopology block_topology(std::span<const int64_t> offsets, int64_t block) {
  WEFT_CHECK(block > 0 && !offsets.empty(), "blocks of {} rows, {} offsets", block, offsets.size());
  BlockTopology out{.block = block, .blocks = {}, .offsets = {0}};
  for (size_t g = 0; g + 1 < offsets.size(); ++g) {
    for (int64_t first = offsets[g]; first < offsets[g + 1]; first += block) {
      out.blocks.push_back(
          {static_cast<int64_t>(g), first, std::min(block, offsets[g + 1] - first)});
    }
    out.offsets.push_back(block * static_cast<int64_t>(out.blocks.size()));
  }
  return out;
}

void pad_values(Exec& exec, const BlockTopology& topology, ConstView values, View padded) {
  if (topology.blocks.empty()) return;
  check_values(topology, values, padded);
  dispatch(exec,
           {.name = "pad_values",
            .type = values.dtype,
            .read = bytes_of(values),
            .written = bytes_of(padded)},
           cpu::pad_values, topology, values, padded);
}

void unpad_values(Exec& exec, const BlockTopology& topology, ConstView padded, View values) {
  if (topology.blocks.empty()) return;
  check_values(topology, values, padded);
  dispatch(exec,
           {.name = "unpad_values",
            .type = values.dtype,
            .read = bytes_of(values),
            .written = bytes_of(values)},
           cpu::unpad_values, topology, padded, values);
}

void sparse_from_dense(Exec& exec, const BlockTopology& topology, ConstView a,
                       const PackedMatrices& b, View c) {
  WEFT_CHECK(c.rows() == topology.padded_rows(), "sparse_from_dense: {} padded rows into {}",
             topology.padded_rows(), c.shape);
  dispatch(exec, check_product("sparse_from_dense", topology, a, b, c), cpu::sparse_from_dense,
           topology, a, b, c);
}

void dense_from_sparse(Exec& exec, const BlockTopology& topology, ConstView a,
                       const PackedMatrices& b, View c) {
  dispatch(exec, check_product("dense_from_sparse", topology, a, b, c), cpu::dense_from_sparse,
           topology, a, b, c);
}

void add_from_sparse(Exec& exec, const BlockTopology& topology, ConstView a, ConstView b, View c) {
  grouped_gemm_weights(exec, a, b, topology.offsets, c);
}

}  // namespace weft::kernels
