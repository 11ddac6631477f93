#include "kernels/matrix/cpu/gemm.h"

#include <vector>

#include "core/host_access.h"
#include "kernels/checks.h"
#include "kernels/matrix/cpu/gemm_driver.h"

namespace weft::kernels::cpu {
namespace {

// Product number `index` of a batch; each matrix is the last two dims.
GemmProduct product_of(ConstView a, ConstView b, View c, GemmOptions options, int64_t index) {
  const auto last = [](ConstView x, int back) { return x.shape[x.shape.dims() - back]; };
  GemmProduct out;
  const bool turn_a = options.a == Transpose::kYes, turn_b = options.b == Transpose::kYes;
  out.a = operand(a, !turn_a, index * last(a, 2));
  out.b = operand(b, turn_b, index * last(b, 2));
  out.m = last(c, 2);
  out.n = last(c, 1);
  out.k = last(a, turn_a ? 2 : 1);
  out.c = static_cast<char*>(c.data) + index * out.m * c.row_stride * size_of(c.dtype);
  out.c_stride = c.row_stride;
  return out;
}

const int32_t* indices(ConstView gather) { return given(gather) ? host<int32_t>(gather) : nullptr; }

}  // namespace

void gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options) {
  const GemmProduct product = product_of(a, b, c, options, 0);
  run_products(exec, gemm_kernels(exec.isa, a.dtype), {&product, 1}, {c.dtype, options.write});
}

void batched_gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options) {
  std::vector<GemmProduct> products;
  products.reserve(static_cast<size_t>(a.shape[0]));
  for (int64_t i = 0; i < a.shape[0]; ++i) products.push_back(product_of(a, b, c, options, i));
  run_products(exec, gemm_kernels(exec.isa, a.dtype), products, {c.dtype, options.write});
}

void pack_matrices(Exec& exec, ConstView b, Transpose transpose, Tensor& panels) {
  const int dims = b.shape.dims();
  const bool turned = transpose == Transpose::kYes;
  const int64_t rows = b.shape[dims - 2], columns = b.shape[dims - 1];
  const int64_t groups = dims == 3 ? b.shape[0] : 1;
  const int64_t k = turned ? columns : rows, n = turned ? rows : columns;
  const GemmKernels& kernels = gemm_kernels(exec.isa, b.dtype);
  const int64_t elements = packed_elements(kernels, k, n);
  if (groups == 0 || elements == 0) return;
  const DType packed = kernels.packed_bytes == 2 ? DType::kBF16 : DType::kF32;
  panels = Tensor::empty(exec.pool, {groups, elements}, packed, Label::kPacked);
  std::vector<GemmRight> rights;
  for (int64_t g = 0; g < groups; ++g) {
    rights.push_back({operand(b, turned, g * rows), 0, n, k, host_bytes(panels.row(g))});
  }
  pack_right(exec, kernels, rights);
}

void grouped_gemm(Exec& exec, ConstView a, std::span<const int64_t> offsets,
                  const PackedMatrices& b, View c, Write write, ConstView gather) {
  const GemmKernels& kernels = gemm_kernels(exec.isa, a.dtype);
  std::vector<GemmProduct> products;
  products.reserve(static_cast<size_t>(b.groups()));
  for (int64_t g = 0; g < b.groups(); ++g) {
    const int64_t first = offsets[static_cast<size_t>(g)];
    GemmProduct p = product_with(kernels, b, g);
    p.m = offsets[static_cast<size_t>(g) + 1] - first;
    if (p.m == 0) continue;
    p.a = operand(a, true, first, indices(gather));
    p.c = c.row_range(first, 0).data;
    p.c_stride = c.row_stride;
    products.push_back(p);
  }
  run_products(exec, kernels, products, {c.dtype, write});
}

void grouped_gemm_weights(Exec& exec, ConstView a, ConstView b, std::span<const int64_t> offsets,
                          View c, const GroupedWeightOptions& options) {
  std::vector<GemmProduct> products;
  products.reserve(static_cast<size_t>(c.shape[0]));
  for (int64_t g = 0; g < c.shape[0]; ++g) {
    const int64_t first = offsets[static_cast<size_t>(g)];
    GemmProduct p;
    p.a = operand(a, false, first, indices(options.gather_a));
    p.b = operand(b, false, first, indices(options.gather_b));
    p.m = a.width();
    p.n = b.width();
    p.k = offsets[static_cast<size_t>(g) + 1] - first;
    p.c = c.row_range(g * p.m, 0).data;
    p.c_stride = c.row_stride;
    products.push_back(p);
  }
  run_products(exec, gemm_kernels(exec.isa, a.dtype), products, {c.dtype, options.write});
}

}  // namespace weft::kernels::cpu
