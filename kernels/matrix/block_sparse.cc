#include "kernels/matrix/block_sparse.h"

#include <algorithm>

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/matrix/gemm_driver.h"

namespace weft::kernels {
namespace {

// One product per block of rows; `block_rows(i)` is where its result starts and how many rows it
// has.
template <class BlockRows>
void multiply_blocks(Exec& exec, const BlockTopology& topology, ConstView a,
                     const PackedMatrices& b, View c, BlockRows block_rows) {
  WEFT_CHECK(a.rows() == topology.padded_rows() && a.width() == b.k() && c.width() == b.n() &&
                 static_cast<int64_t>(topology.offsets.size()) == b.groups() + 1,
             "block-sparse product of {} ({} padded rows, {} groups) with {} of [{}, {}] into {}",
             a.shape, topology.padded_rows(), topology.offsets.size() - 1, b.groups(), b.k(), b.n(),
             c.shape);
  WEFT_CHECK(a.dtype == b.plain().dtype, "block-sparse product of {} with {}", name_of(a.dtype),
             name_of(b.plain().dtype));
  const GemmKernels& kernels = gemm_kernels(exec.isa, a.dtype);
  const bool turned = b.transpose() == Transpose::kYes;
  std::vector<GemmProduct> products;
  products.reserve(topology.blocks.size());
  for (size_t i = 0; i < topology.blocks.size(); ++i) {
    const int64_t group = topology.blocks[i].group;
    const auto [first, rows] = block_rows(static_cast<int64_t>(i));
    GemmProduct p;
    p.a = operand(a, true, static_cast<int64_t>(i) * topology.block);
    p.b = operand(b.plain(), turned, group * (turned ? b.n() : b.k()));
    p.m = rows;
    p.n = b.n();
    p.k = b.k();
    p.panels = b.packed() ? host_bytes(b.panels().row(group)) : nullptr;
    p.c = c.row_range(first, 0).data;
    p.c_stride = c.row_stride;
    products.push_back(p);
  }
  run_products(exec, kernels, products, {c.dtype, Write::kReplace});
}

struct RowRange {
  int64_t first, rows;
};

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

std::vector<int32_t> padded(const BlockTopology& topology, std::span<const int32_t> values,
                            int32_t padding) {
  std::vector<int32_t> out(static_cast<size_t>(topology.padded_rows()), padding);
  for (size_t i = 0; i < topology.blocks.size(); ++i) {
    const auto& [group, first, rows] = topology.blocks[i];
    std::copy_n(values.begin() + first, rows,
                out.begin() + static_cast<int64_t>(i) * topology.block);
  }
  return out;
}

void pad_values(const BlockTopology& topology, ConstView values, View padded) {
  if (topology.blocks.empty()) return;
  const BlockTopology::Block& last = topology.blocks.back();
  const float* from = vector_of<float>(values, last.first + last.rows, "pad_values: values");
  float* to = vector_of<float>(padded, topology.padded_rows(), "pad_values: padded");
  for (const auto& [group, first, rows] : topology.blocks) {
    to = std::copy_n(from + first, rows, to);
    to = std::fill_n(to, topology.block - rows, 0.0f);
  }
}

void unpad_values(const BlockTopology& topology, ConstView padded, View values) {
  if (topology.blocks.empty()) return;
  const BlockTopology::Block& last = topology.blocks.back();
  const float* from = vector_of<float>(padded, topology.padded_rows(), "unpad_values: padded");
  float* to = vector_of<float>(values, last.first + last.rows, "unpad_values: values");
  for (const auto& [group, first, rows] : topology.blocks) {
    to = std::copy_n(from, rows, to);
    from += topology.block;
  }
}

void sparse_from_dense(Exec& exec, const BlockTopology& topology, ConstView a,
                       const PackedMatrices& b, View c) {
  WEFT_CHECK(c.rows() == topology.padded_rows(), "sparse_from_dense: {} padded rows into {}",
             topology.padded_rows(), c.shape);
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

void add_from_sparse(Exec& exec, const BlockTopology& topology, ConstView a, ConstView b, View c) {
  grouped_gemm_weights(exec, a, b, topology.offsets, c);
}

}  // namespace weft::kernels
