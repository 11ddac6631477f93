#pragma once

#include <cublasLt.h>

#include <fmt/format.h>

#include <string>
#include <utility>

#include "tests/support/vgpu/cublaslt/descriptors.h"
#include "tests/support/vgpu/cublaslt/product.h"
#include "tests/support/vgpu/host/options.h"

// The matrices of a product, and what the real library refuses of them.
namespace vgpu {

struct Refused {
  cublasStatus_t status;
  std::string why;
};
template <class... A>
[[noreturn]] void refuse_product(cublasStatus_t status, fmt::format_string<A...> text, A&&... a) {
  throw Refused{status, fmt::format(text, std::forward<A>(a)...)};
}

struct TypeInfo {
  cudaDataType_t cuda;
  NumberType type;
  uint64_t bytes;
  const char* name;
};
const TypeInfo& type_of(uint32_t cuda);
inline bool is_fp8(const TypeInfo& t) { return t.bytes == 1; }

// One matrix of a call, with its layout.
struct Side {
  const char* name;
  const void* data;
  const MatrixLayout& layout;
  bool transposed;
  const TypeInfo& type;

  uint64_t rows() const { return transposed ? layout.columns : layout.rows; }
  uint64_t columns() const { return transposed ? layout.rows : layout.columns; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data); }

  ProductMatrix matrix() const {
    const bool by_rows = layout.order == CUBLASLT_ORDER_ROW;
    int64_t row = by_rows ? layout.leading : 1, column = by_rows ? 1 : layout.leading;
    if (transposed) std::swap(row, column);
    return {address(), type.type, row, column, layout.batch_stride};
  }
};

struct Sides {
  Side a, b, c, d;
};

// Alignments that a heuristic was promised, in bytes.
struct Alignments {
  uint64_t a = 1, b = 1, c = 1, d = 1;
};

// Throws Refused.
void check_product(const Sides& sides, const MatmulDesc& desc, const Alignments& alignments,
                   const Architecture& architecture);

}  // namespace vgpu
