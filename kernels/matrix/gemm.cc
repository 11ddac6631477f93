#include "kernels/matrix/gemm.h"

#include "core/host_access.h"
#include "kernels/matrix/gemm_driver.h"

// f32 products are ours as well: on one AVX2 core they run at 0.9 to 1.1 of OpenBLAS's rate from
// 512 to 2048 cubed and on the shapes of a training step, at 1.1 grouped and above 1.3 for 16 rows
// and fewer, and they give a row the same bits whatever surrounds it. The library is loaded by the
// benchmark that shows this, and nowhere else:
//   weft bench gemm --precision f32 --threads 1 --step-shapes
namespace weft::kernels {
namespace {

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

void check_types(DType a, DType b, DType c, Write write) {
  WEFT_CHECK(is_float(a) && a == b, "gemm of {} with {}: both must be f32 or both bf16", name_of(a),
             name_of(b));
  WEFT_CHECK(is_float(c), "gemm into {}: must be f32 or bf16", name_of(c));
  WEFT_CHECK(write == Write::kReplace || c == DType::kF32,
             "gemm adds into {}: only f32 can be added to", name_of(c));
}

struct Extents {
  int64_t m, n, k;
};

// Of c = op(a) op(b), whose last two dims are the matrices.
Extents extents_of(ConstView a, ConstView b, ConstView c, GemmOptions options) {
  const int da = a.shape.dims(), db = b.shape.dims(), dc = c.shape.dims();
  const bool turn_a = options.a == Transpose::kYes, turn_b = options.b == Transpose::kYes;
  const int64_t m = a.shape[turn_a ? da - 1 : da - 2], k = a.shape[turn_a ? da - 2 : da - 1];
  const int64_t kb = b.shape[turn_b ? db - 1 : db - 2], n = b.shape[turn_b ? db - 2 : db - 1];
  WEFT_CHECK(k == kb && c.shape[dc - 2] == m && c.shape[dc - 1] == n,
             "gemm: a {}{} times b {}{} into c {}", a.shape, turn_a ? " transposed" : "", b.shape,
             turn_b ? " transposed" : "", c.shape);
  return {m, n, k};
}

GemmProduct product_of(ConstView a, ConstView b, View c, GemmOptions options, Extents e,
                       int64_t index) {
  GemmProduct out;
  const bool turn_a = options.a == Transpose::kYes, turn_b = options.b == Transpose::kYes;
  out.a = operand(a, !turn_a, index * (turn_a ? e.k : e.m));
  out.b = operand(b, turn_b, index * (turn_b ? e.n : e.k));
  out.m = e.m;
  out.n = e.n;
  out.k = e.k;
  out.c = static_cast<char*>(c.data) + index * e.m * c.row_stride * size_of(c.dtype);
  out.c_stride = c.row_stride;
  return out;
}

}  // namespace

void gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options) {
  WEFT_CHECK(a.shape.dims() == 2 && b.shape.dims() == 2 && c.shape.dims() == 2,
             "gemm: a {}, b {}, c {} must be matrices", a.shape, b.shape, c.shape);
  check_types(a.dtype, b.dtype, c.dtype, options.write);
  const GemmProduct product = product_of(a, b, c, options, extents_of(a, b, c, options), 0);
  run_products(exec, gemm_kernels(exec.isa, a.dtype), {&product, 1}, {c.dtype, options.write});
}

void batched_gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options) {
  WEFT_CHECK(a.shape.dims() == 3 && b.shape.dims() == 3 && c.shape.dims() == 3,
             "batched_gemm: a {}, b {}, c {} must have three dims", a.shape, b.shape, c.shape);
  const int64_t batch = a.shape[0];
  WEFT_CHECK(b.shape[0] == batch && c.shape[0] == batch, "batched_gemm: a {}, b {}, c {}", a.shape,
             b.shape, c.shape);
  check_types(a.dtype, b.dtype, c.dtype, options.write);
  const Extents extents = extents_of(a, b, c, options);
  std::vector<GemmProduct> products;
  products.reserve(static_cast<size_t>(batch));
  for (int64_t i = 0; i < batch; ++i) {
    products.push_back(product_of(a, b, c, options, extents, i));
  }
  run_products(exec, gemm_kernels(exec.isa, a.dtype), products, {c.dtype, options.write});
}

PackedMatrices::PackedMatrices(Exec& exec, ConstView b, Transpose transpose)
    : plain_(b), transpose_(transpose) {
  const int dims = b.shape.dims();
  WEFT_CHECK((dims == 2 || dims == 3) && is_float(b.dtype),
             "PackedMatrices of {} {}: must be one matrix or a stack of them, f32 or bf16",
             name_of(b.dtype), b.shape);
  const bool turned = transpose == Transpose::kYes;
  const int64_t rows = b.shape[dims - 2];
  groups_ = dims == 3 ? b.shape[0] : 1;
  k_ = turned ? b.shape[dims - 1] : rows;
  n_ = turned ? rows : b.shape[dims - 1];
  const GemmKernels& kernels = gemm_kernels(exec.isa, b.dtype);
  const int64_t elements = packed_elements(kernels, k_, n_);
  if (groups_ == 0 || elements == 0) return;
  const DType packed = kernels.packed_bytes == 2 ? DType::kBF16 : DType::kF32;
  panels_ = Tensor::empty(exec.pool, {groups_, elements}, packed, Label::kPacked);
  std::vector<GemmRight> rights;
  for (int64_t g = 0; g < groups_; ++g) {
    rights.push_back({operand(b, turned, g * rows), 0, n_, k_, host_bytes(panels_.row(g))});
  }
  pack_right(exec, kernels, rights);
}

void gemm(Exec& exec, ConstView a, const PackedMatrices& b, View c, Write write) {
  WEFT_CHECK(b.groups() == 1, "gemm with {} packed matrices: one is meant", b.groups());
  const int64_t offsets[2] = {0, a.rows()};
  grouped_gemm(exec, a, offsets, b, c, write);
}

}  // namespace weft::kernels
