#include "kernels/matrix/cpu/block_sparse.h"

#include <algorithm>
#include <vector>

#include "core/host_access.h"
#include "kernels/matrix/cpu/gemm_driver.h"

namespace weft::kernels::cpu {
namespace {

// One product per block of rows; `block_rows(i)` is where its result starts and how many rows it
// has.
template <class BlockRows>
void multiply_blocks(Exec& exec, const BlockTopology& topology, ConstView a,
                     const PackedMatrices& b, View c, BlockRows block_rows) {
  const GemmKernels& kernels = gemm_kernels(exec.isa, a.dtype);
  std::vector<GemmProduct> products;
  products.reserve(topology.blocks.size());
  for (size_t i = 0; i < topology.blocks.size(); ++i) {
    const auto [first, rows] = block_rows(static_cast<int64_t>(i));
    GemmProduct p = product_with(kernels, b, topology.blocks[i].group);
    p.a = operand(a, true, static_cast<int64_t>(i) * topology.block);
    p.m = rows;
    p.c = c.row_range(first, 0).data;
    p.c_stride = c.row_stride;
    products.push_back(p);
  }
  run_products(exec, kernels, products, {c.dtype, Write::kReplace});
}

struct RowRange {
  int64_t first, rows;
};

template <class T>
void pad(const BlockTopology& topology, const T* from, T padding, T* to) {
  for (const auto& [group, first, rows] : topology.blocks) {
    to = std::copy_n(from + first, rows, to);
    to = std::fill_n(to, topology.block - rows, padding);
  }
}

template <class T>
void unpad(const BlockTopology& topology, const T* from, T* to) {
  for (const auto& [group, first, rows] : topology.blocks) {
    to = std::copy_n(from, rows, to);
    from += topology.block;
  }
}

}  // namespace

void pad_values(Exec&, const BlockTopology& topology, ConstView values, View padded) {
  if (values.dtype == DType::kI32) {
    return pad(topology, host<int32_t>(values), int32_t{-1}, host<int32_t>(padded));
  }
  pad(topology, host<float>(values), 0.0f, host<float>(padded));
}

void unpad_values(Exec&, const BlockTopology& topology, ConstView padded, View values) {
  if (values.dtype == DType::kI32) {
    return unpad(topology, host<int32_t>(padded), host<int32_t>(values));
  }
  unpad(topology, host<float>(padded), host<float>(values));
}

void sparse_from_dense(Exec& exec, const BlockTopology& topology, ConstView a,
                       const PackedMatrices& b, View c) {
  multiply_blocks(exec, topology, a, b, c, [&](int64_t i) {
    return RowRange{i * topology.block, topology.block};
  });
}

void dense_from_sparse(Exec& exec, const BlockTopology& topology, ConstView a,
                       const PackedMatrices& b, View c) {
  multiply_blocks(exec, topology, a, b, c, [&](int64_t i) {
    const BlockTopology::Block& block = topology.blocks[static_cast<size_t>(i)];
    return RowRange{block.first, block.rows};
  });
}

}  // namespace weft::kernels::cpu
