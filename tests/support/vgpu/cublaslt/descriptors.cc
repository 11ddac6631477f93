#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string>

#include <fmt/format.h>

#include "tests/support/vgpu/cublaslt/descriptors.h"

// Every attribute is in a table of what a product looks at. One that is not is refused, so that no
// option of a program goes unheeded.
namespace vgpu {
namespace {

struct Field {
  int attribute;
  size_t offset, bytes;
};
#define VGPU_FIELD(type, attribute, member) \
  { attribute, offsetof(type, member), sizeof(type::member) }

constexpr Field kDescFields[] = {
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, compute_type),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_SCALE_TYPE, scale_type),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_POINTER_MODE, pointer_mode),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_TRANSA, transpose_a),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_TRANSB, transpose_b),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_TRANSC, transpose_c),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_FILL_MODE, fill_mode),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a_scale),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, b_scale),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_C_SCALE_POINTER, c_scale),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, d_scale),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, amax_d),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast_accumulation),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, multiprocessors),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, a_scale_mode),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, b_scale_mode),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_C_SCALE_MODE, c_scale_mode),
    VGPU_FIELD(MatmulDesc, CUBLASLT_MATMUL_DESC_D_SCALE_MODE, d_scale_mode),
};
constexpr Field kLayoutFields[] = {
    VGPU_FIELD(MatrixLayout, CUBLASLT_MATRIX_LAYOUT_TYPE, type),
    VGPU_FIELD(MatrixLayout, CUBLASLT_MATRIX_LAYOUT_ORDER, order),
    VGPU_FIELD(MatrixLayout, CUBLASLT_MATRIX_LAYOUT_ROWS, rows),
    VGPU_FIELD(MatrixLayout, CUBLASLT_MATRIX_LAYOUT_COLS, columns),
    VGPU_FIELD(MatrixLayout, CUBLASLT_MATRIX_LAYOUT_LD, leading),
    VGPU_FIELD(MatrixLayout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches),
    VGPU_FIELD(MatrixLayout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride),
};
constexpr Field kPreferenceFields[] = {
    VGPU_FIELD(MatmulPreference, CUBLASLT_MATMUL_PREF_SEARCH_MODE, search_mode),
    VGPU_FIELD(MatmulPreference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes),
    VGPU_FIELD(MatmulPreference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction_schemes),
    VGPU_FIELD(MatmulPreference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_a),
    VGPU_FIELD(MatmulPreference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_b),
    VGPU_FIELD(MatmulPreference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_c),
    VGPU_FIELD(MatmulPreference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_d),
    VGPU_FIELD(MatmulPreference, CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, waves),
};
#undef VGPU_FIELD

const Field* find(std::span<const Field> fields, int attribute) {
  for (const Field& f : fields) {
    if (f.attribute == attribute) return &f;
  }
  return nullptr;
}

cublasStatus_t set(void* object, std::span<const Field> fields, const char* what, int attribute,
                   const void* from, size_t bytes) {
  const Field* f = find(fields, attribute);
  if (f == nullptr) {
    return refused(
        CUBLAS_STATUS_NOT_SUPPORTED,
        fmt::format("attribute {} of a {} is not one that is looked at", attribute, what));
  }
  if (bytes != f->bytes) {
    return refused(
        CUBLAS_STATUS_INVALID_VALUE,
        fmt::format("attribute {} of a {} has {} bytes, not {}", attribute, what, f->bytes, bytes));
  }
  std::memcpy(static_cast<char*>(object) + f->offset, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t get(const void* object, std::span<const Field> fields, int attribute, void* to,
                   size_t bytes, size_t* written) {
  const Field* f = find(fields, attribute);
  if (f == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (written != nullptr) *written = f->bytes;
  if (bytes == 0 && written != nullptr) return CUBLAS_STATUS_SUCCESS;
  if (bytes != f->bytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, static_cast<const char*>(object) + f->offset, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t refused(cublasStatus_t status, const std::string& why) {
  std::fprintf(stderr, "vgpu: cuBLASLt: %s\n", why.c_str());
  return status;
}

}  // namespace vgpu

using namespace vgpu;

extern "C" {

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t to, size_t,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  new (to) MatmulDesc{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* to, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *to = new cublasLtMatmulDescOpaque_t{};
  return cublasLtMatmulDescInit_internal(*to, sizeof **to, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t x) {
  delete x;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t x,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* from, size_t bytes) {
  return set(x, kDescFields, "product", attribute, from, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t x,
                                              cublasLtMatmulDescAttributes_t attribute, void* to,
                                              size_t bytes, size_t* written) {
  return get(x, kDescFields, attribute, to, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t to, size_t,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t leading) {
  new (to) MatrixLayout{static_cast<uint32_t>(type), CUBLASLT_ORDER_COL, rows, columns, leading};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  *to = new cublasLtMatrixLayoutOpaque_t{};
  return cublasLtMatrixLayoutInit_internal(*to, sizeof **to, type, rows, columns, leading);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x) {
  delete x;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t x,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* from, size_t bytes) {
  return set(x, kLayoutFields, "matrix layout", attribute, from, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t x,
                                                cublasLtMatrixLayoutAttribute_t attribute, void* to,
                                                size_t bytes, size_t* written) {
  return get(x, kLayoutFields, attribute, to, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t to, size_t) {
  new (to) MatmulPreference{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* to) {
  *to = new cublasLtMatmulPreferenceOpaque_t{};
  return cublasLtMatmulPreferenceInit_internal(*to, sizeof **to);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t x) {
  delete x;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t x,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* from, size_t bytes) {
  return set(x, kPreferenceFields, "preference", attribute, from, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t x,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    void* to, size_t bytes, size_t* written) {
  return get(x, kPreferenceFields, attribute, to, bytes, written);
}

}  // extern "C"
