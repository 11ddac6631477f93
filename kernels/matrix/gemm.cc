#include "kernels/matrix/gemm.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/matrix/cpu/gemm.h"

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

// FLOPs of one product c = op(a) op(b); the last two dims are the matrices.
double check_extents(ConstView a, ConstView b, ConstView c, GemmOptions options) {
  const int da = a.shape.dims(), db = b.shape.dims(), dc = c.shape.dims();
  const bool turn_a = options.a == Transpose::kYes, turn_b = options.b == Transpose::kYes;
  const int64_t m = a.shape[turn_a ? da - 1 : da - 2], k = a.shape[turn_a ? da - 2 : da - 1];
  const int64_t kb = b.shape[turn_b ? db - 1 : db - 2], n = b.shape[turn_b ? db - 2 : db - 1];
  WEFT_CHECK(k == kb && c.shape[dc - 2] == m && c.shape[dc - 1] == n,
             "gemm: a {}{} times b {}{} into c {}", a.shape, turn_a ? " transposed" : "", b.shape,
             turn_b ? " transposed" : "", c.shape);
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

KernelCall call_of(const char* name, ConstView a, ConstView b, View c, Write write, double flops) {
  return {.name = name,
          .type = a.dtype,
          .flops = flops,
          .read = bytes_of(a, b) + (write == Write::kAccumulate ? bytes_of(c) : 0),
          .written = bytes_of(c)};
}

}  // namespace

void gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options) {
  WEFT_CHECK(a.shape.dims() == 2 && b.shape.dims() == 2 && c.shape.dims() == 2,
             "gemm: a {}, b {}, c {} must be matrices", a.shape, b.shape, c.shape);
  check_types(a.dtype, b.dtype, c.dtype, options.write);
  const double flops = check_extents(a, b, c, options);
  dispatch(exec, call_of("gemm", a, b, c, options.write, flops), cpu::gemm, a, b, c, options);
}

void batched_gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options) {
  WEFT_CHECK(a.shape.dims() == 3 && b.shape.dims() == 3 && c.shape.dims() == 3,
             "batched_gemm: a {}, b {}, c {} must have three dims", a.shape, b.shape, c.shape);
  const int64_t batch = a.shape[0];
  WEFT_CHECK(b.shape[0] == batch && c.shape[0] == batch, "batched_gemm: a {}, b {}, c {}", a.shape,
             b.shape, c.shape);
  check_types(a.dtype, b.dtype, c.dtype, options.write);
  const double flops = static_cast<double>(batch) * check_extents(a, b, c, options);
  dispatch(exec, call_of("batched_gemm", a, b, c, options.write, flops), cpu::batched_gemm, a, b, c,
           options);
}

PackedMatrices::PackedMatrices(Exec& exec, ConstView b, Transpose transpose)
    : plain_(b), transpose_(transpose) {
  const int dims = b.shape.dims();
  WEFT_CHECK((dims == 2 || dims == 3) && is_float(b.dtype),
             "PackedMatrices of {} {}: must be one matrix or a stack of them, f32 or bf16",
             name_of(b.dtype), b.shape);
  const bool turned = transpose == Transpose::kYes;
  groups_ = dims == 3 ? b.shape[0] : 1;
  k_ = b.shape[turned ? dims - 1 : dims - 2];
  n_ = b.shape[turned ? dims - 2 : dims - 1];
  dispatch(exec,
           {.name = "pack_matrices", .type = b.dtype, .read = bytes_of(b), .written = bytes_of(b)},
           cpu::pack_matrices, b, transpose, panels_);
}

void gemm(Exec& exec, ConstView a, const PackedMatrices& b, View c, Write write) {
  WEFT_CHECK(b.groups() == 1, "gemm with {} packed matrices: one is meant", b.groups());
  const int64_t offsets[2] = {0, a.rows()};
  grouped_gemm(exec, a, offsets, b, c, write);
}

}  // namespace weft::kernels
