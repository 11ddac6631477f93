#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace vgpu {

// Descriptors of a product, in the storage of cuBLASLt's opaque types.
struct MatmulDesc {
  cublasComputeType_t compute_type;
  cudaDataType_t scale_type;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N, transpose_c = CUBLAS_OP_N;
  int32_t fill_mode = CUBLAS_FILL_MODE_FULL;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int32_t bias_type = -1;  // of D
  const void *a_scale = nullptr, *b_scale = nullptr, *c_scale = nullptr, *d_scale = nullptr;
  void* amax_d = nullptr;
  int8_t fast_accumulation = 0;  // no difference here: sums are in double
  int32_t multiprocessors = 0;   // a hint
  int32_t a_scale_mode = 0, b_scale_mode = 0, c_scale_mode = 0, d_scale_mode = 0;
};

struct MatrixLayout {
  uint32_t type;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batches = 1;
  int64_t batch_stride = 0;
};

struct MatmulPreference {
  uint32_t search_mode = 0;
  uint64_t workspace_bytes = 0;
  uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
  float waves = 0;
};

static_assert(sizeof(MatmulDesc) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(MatrixLayout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(MatmulPreference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

// Result of a heuristic, inside cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t mark;  // kMark
  uint64_t workspace_bytes;
  uint32_t alignment_a, alignment_b, alignment_c, alignment_d;
  static constexpr uint64_t kMark = 0x76677075'6d6d;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

inline MatmulDesc& of(cublasLtMatmulDesc_t x) { return *reinterpret_cast<MatmulDesc*>(x); }
inline MatrixLayout& of(cublasLtMatrixLayout_t x) { return *reinterpret_cast<MatrixLayout*>(x); }
inline MatmulPreference& of(cublasLtMatmulPreference_t x) {
  return *reinterpret_cast<MatmulPreference*>(x);
}

// Prints the reason and returns the status.
cublasStatus_t refused(cublasStatus_t status, const std::string& why);

}  // namespace vgpu
