#include "kernels/cublaslt/gemm.h"

#include <cublasLt.h>

#include <utility>

#include "core/base/error.h"

namespace weft::kernels::cublaslt {
namespace {

void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error("{}: {} ({})", call, cublasLtGetStatusString(status), static_cast<int>(status));
}

// One of cuBLASLt's objects, by its create and destroy functions.
template <class Handle, auto kDestroy>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle != nullptr) kDestroy(handle);
  }
};
using Library = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Product = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

cudaDataType_t cuda_type(DType dtype) { return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F; }

void describe(Layout& layout, ConstView x) {
  const auto rows = static_cast<uint64_t>(x.rows()), columns = static_cast<uint64_t>(x.width());
  check_cublas(
      cublasLtMatrixLayoutCreate(&layout.handle, cuda_type(x.dtype), rows, columns, x.row_stride),
      "cublasLtMatrixLayoutCreate");
  const cublasLtOrder_t order = CUBLASLT_ORDER_ROW;
  check_cublas(cublasLtMatrixLayoutSetAttribute(layout.handle, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                                sizeof order),
               "CUBLASLT_MATRIX_LAYOUT_ORDER");
}

void set_transpose(Product& product, cublasLtMatmulDescAttributes_t which, Transpose transpose) {
  const cublasOperation_t op = transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
  check_cublas(cublasLtMatmulDescSetAttribute(product.handle, which, &op, sizeof op),
               "CUBLASLT_MATMUL_DESC_TRANS");
}

// [rows, columns] of op(x).
std::pair<int64_t, int64_t> extent(ConstView x, Transpose transpose) {
  if (transpose == Transpose::kYes) return {x.width(), x.rows()};
  return {x.rows(), x.width()};
}

}  // namespace

void gemm(CUstream_st* stream, ConstView a, ConstView b, View c, GemmOptions options) {
  const auto [m, k] = extent(a, options.a);
  const auto [inner, n] = extent(b, options.b);
  WEFT_CHECK(inner == k && c.rows() == m && c.width() == n,
             "gemm: [{}, {}] times [{}, {}] is not {}", m, k, inner, n, c.shape);
  WEFT_CHECK(a.dtype == b.dtype, "gemm: {} times {}", name_of(a.dtype), name_of(b.dtype));
  if (m == 0 || n == 0) return;
  Library library;
  check_cublas(cublasLtCreate(&library.handle), "cublasLtCreate");
  Product product;
  check_cublas(cublasLtMatmulDescCreate(&product.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  set_transpose(product, CUBLASLT_MATMUL_DESC_TRANSA, options.a);
  set_transpose(product, CUBLASLT_MATMUL_DESC_TRANSB, options.b);
  Layout la, lb, lc;
  describe(la, a);
  describe(lb, b);
  describe(lc, c);
  const float alpha = 1.0f, beta = options.write == Write::kAccumulate ? 1.0f : 0.0f;
  check_cublas(
      cublasLtMatmul(library.handle, product.handle, &alpha, a.data, la.handle, b.data, lb.handle,
                     &beta, c.data, lc.handle, c.data, lc.handle, nullptr, nullptr, 0, stream),
      "cublasLtMatmul");
}

}  // namespace weft::kernels::cublaslt

extern "C" int weft_cublaslt_version() { return static_cast<int>(cublasLtGetVersion()); }
