#include "tests/support/vgpu/cublaslt/sides.h"

#include <algorithm>

namespace vgpu {
namespace {

constexpr TypeInfo kTypes[] = {
    {CUDA_R_64F, NumberType::kF64, 8, "f64"},       {CUDA_R_32F, NumberType::kF32, 4, "f32"},
    {CUDA_R_16F, NumberType::kF16, 2, "f16"},       {CUDA_R_16BF, NumberType::kBf16, 2, "bf16"},
    {CUDA_R_8F_E4M3, NumberType::kE4m3, 1, "e4m3"}, {CUDA_R_8F_E5M2, NumberType::kE5m2, 1, "e5m2"}};
void check_side(const Side& s, uint64_t alignment) {
  if (s.layout.order != CUBLASLT_ORDER_COL && s.layout.order != CUBLASLT_ORDER_ROW) {
    refuse_product(CUBLAS_STATUS_NOT_SUPPORTED, "{}: order {}", s.name, s.layout.order);
  }
  if (s.layout.rows == 0 || s.layout.columns == 0 || s.layout.batches < 1) {
    refuse_product(CUBLAS_STATUS_INVALID_VALUE, "{}: {} x {} entries in {} matrices", s.name,
                   s.layout.rows, s.layout.columns, s.layout.batches);
  }
  const bool by_rows = s.layout.order == CUBLASLT_ORDER_ROW;
  const uint64_t line = by_rows ? s.layout.columns : s.layout.rows;
  if (s.layout.leading < static_cast<int64_t>(line)) {
    refuse_product(CUBLAS_STATUS_INVALID_VALUE, "{}: leading dimension {} for lines of {}", s.name,
                   s.layout.leading, line);
  }
  const uint64_t needed = std::max(alignment, s.type.bytes);
  if (s.address() % needed != 0) {
    refuse_product(CUBLAS_STATUS_INVALID_VALUE, "{}: {:#x} is not aligned to the {} bytes that {}",
                   s.name, s.address(), needed,
                   alignment > s.type.bytes ? "the algorithm was chosen for" : "its type has");
  }
}

void check_extents(const Sides& s) {
  const auto& [a, b, c, d] = s;
  if (a.columns() != b.rows() || d.rows() != a.rows() || d.columns() != b.columns() ||
      c.rows() != d.rows() || c.columns() != d.columns()) {
    refuse_product(CUBLAS_STATUS_INVALID_VALUE,
                   "[{}, {}] times [{}, {}] to [{}, {}], added to [{}, {}]", a.rows(), a.columns(),
                   b.rows(), b.columns(), d.rows(), d.columns(), c.rows(), c.columns());
  }
  for (const Side* x : {&a, &b, &c}) {
    if (x->layout.batches != d.layout.batches) {
      refuse_product(CUBLAS_STATUS_INVALID_VALUE, "{}: {} matrices, D has {}", x->name,
                     x->layout.batches, d.layout.batches);
    }
  }
}

// The combinations of the table in cuBLASLt's manual that are of use.
void check_types(const Sides& s, const MatmulDesc& desc) {
  const auto& [a, b, c, d] = s;
  const bool f64 = a.type.type == NumberType::kF64;
  const bool compute_fits = f64 ? desc.compute_type == CUBLAS_COMPUTE_64F
                                : desc.compute_type == CUBLAS_COMPUTE_32F ||
                                      (desc.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32 &&
                                       a.type.type == NumberType::kF32);
  if (!compute_fits || desc.scale_type != (f64 ? CUDA_R_64F : CUDA_R_32F)) {
    refuse_product(CUBLAS_STATUS_NOT_SUPPORTED, "compute type {} with scale type {} for {}",
                   static_cast<int>(desc.compute_type), static_cast<int>(desc.scale_type),
                   a.type.name);
  }
  bool fits = false;
  if (is_fp8(a.type)) {
    const bool both_wide = a.type.type == NumberType::kE5m2 && b.type.type == NumberType::kE5m2;
    const bool c_fits = c.type.bytes == 2 || c.type.type == NumberType::kF32;
    fits = is_fp8(b.type) && !both_wide && c_fits && (is_fp8(d.type) || d.type.type == c.type.type);
  } else {
    const bool widened = a.type.bytes == 2 && d.type.type == NumberType::kF32;
    fits = b.type.type == a.type.type && c.type.type == d.type.type &&
           (d.type.type == a.type.type || widened);
  }
  if (!fits) {
    refuse_product(CUBLAS_STATUS_NOT_SUPPORTED, "{} times {} plus {} to {}", a.type.name,
                   b.type.name, c.type.name, d.type.name);
  }
}

// Before sm_100 products of fp8 are of a transposed A and a plain B, with everything in units of
// 16 bytes.
void check_fp8(const Sides& s, const MatmulDesc& desc, const Architecture& architecture) {
  const auto& [a, b, c, d] = s;
  if (!is_fp8(a.type)) return;
  if (architecture.number < 89) {
    refuse_product(CUBLAS_STATUS_ARCH_MISMATCH, "fp8 on sm_{}", architecture.number);
  }
  const bool tn = desc.transpose_a == CUBLAS_OP_T && desc.transpose_b == CUBLAS_OP_N &&
                  a.layout.order == CUBLASLT_ORDER_COL && b.layout.order == CUBLASLT_ORDER_COL;
  if (!tn && architecture.number < 100) {
    refuse_product(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 on sm_{} wants A transposed, B not",
                   architecture.number);
  }
  for (const Side* x : {&a, &b, &c, &d}) {
    const uint64_t line = static_cast<uint64_t>(x->layout.leading) * x->type.bytes;
    if (x->layout.rows % 16 != 0 || x->layout.columns % 16 != 0 || line % 16 != 0 ||
        x->address() % 16 != 0) {
      refuse_product(CUBLAS_STATUS_NOT_SUPPORTED,
                     "fp8: {} is {} x {} with lines of {} bytes at {:#x}; all must be multiples of "
                     "16",
                     x->name, x->layout.rows, x->layout.columns, line, x->address());
    }
  }
}

void check_desc(const MatmulDesc& desc) {
  if (desc.transpose_c != CUBLAS_OP_N || desc.fill_mode != CUBLAS_FILL_MODE_FULL) {
    refuse_product(CUBLAS_STATUS_NOT_SUPPORTED, "a transposed C, or a part of D alone");
  }
  for (const int32_t mode :
       {desc.a_scale_mode, desc.b_scale_mode, desc.c_scale_mode, desc.d_scale_mode}) {
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) continue;
    refuse_product(CUBLAS_STATUS_NOT_SUPPORTED, "scales of mode {}; only one per matrix", mode);
  }
  for (const int32_t transpose : {desc.transpose_a, desc.transpose_b}) {
    if (transpose == CUBLAS_OP_N || transpose == CUBLAS_OP_T || transpose == CUBLAS_OP_C) continue;
    refuse_product(CUBLAS_STATUS_INVALID_VALUE, "transposition {}", transpose);
  }
}

}  // namespace

const TypeInfo& type_of(uint32_t cuda) {
  for (const TypeInfo& t : kTypes) {
    if (static_cast<uint32_t>(t.cuda) == cuda) return t;
  }
  refuse_product(CUBLAS_STATUS_NOT_SUPPORTED, "matrices of type {}", cuda);
}

void check_product(const Sides& s, const MatmulDesc& desc, const Alignments& alignments,
                   const Architecture& architecture) {
  check_desc(desc);
  check_side(s.a, alignments.a);
  check_side(s.b, alignments.b);
  check_side(s.c, alignments.c);
  check_side(s.d, alignments.d);
  check_extents(s);
  check_types(s, desc);
  check_fp8(s, desc, architecture);
}

}  // namespace vgpu
