#include "core/host_access.h"
#include "kernels/matrix/gemm_driver.h"

namespace weft::kernels {
namespace {

void check_offsets(std::span<const int64_t> offsets, int64_t groups, int64_t rows) {
  WEFT_CHECK(static_cast<int64_t>(offsets.size()) == groups + 1, "{} offsets for {} groups",
             offsets.size(), groups);
  WEFT_CHECK(offsets.front() == 0 && offsets.back() == rows,
             "offsets run from {} to {}, not 0 to {}", offsets.front(), offsets.back(), rows);
  for (size_t g = 0; g + 1 < offsets.size(); ++g) {
    WEFT_CHECK(offsets[g] <= offsets[g + 1], "offsets fall from {} to {} at group {}", offsets[g],
               offsets[g + 1], g);
  }
}

// `rows` rows are read, straight or through the index (which is empty in both cases when rows is
// 0).
bool has_rows(ConstView a, std::span<const int32_t> gather, int64_t rows) {
  return rows == 0 || (gather.empty() ? a.rows() : static_cast<int64_t>(gather.size())) == rows;
}

}  // namespace

void grouped_gemm(Exec& exec, ConstView a, std::span<const int64_t> offsets,
                  const PackedMatrices& b, View c, Write write, std::span<const int32_t> gather) {
  check_offsets(offsets, b.groups(), c.rows());
  WEFT_CHECK(has_rows(a, gather, c.rows()) && a.width() == b.k() && c.width() == b.n(),
             "grouped_gemm: a {}, {} gathered, times [{}, {}] into c {}", a.shape, gather.size(),
             b.k(), b.n(), c.shape);
  WEFT_CHECK(a.dtype == b.plain().dtype, "grouped_gemm of {} with {}", name_of(a.dtype),
             name_of(b.plain().dtype));
  WEFT_CHECK(c.dtype == DType::kF32 || (c.dtype == DType::kBF16 && write == Write::kReplace),
             "grouped_gemm cannot {} {}", write == Write::kReplace ? "write" : "add into",
             name_of(c.dtype));
  const GemmKernels& kernels = gemm_kernels(exec.isa, a.dtype);
  if (b.packed()) {
    WEFT_CHECK(b.panels().shape()[1] == packed_elements(kernels, b.k(), b.n()) &&
                   size_of(b.panels().dtype()) == kernels.packed_bytes,
               "matrices were packed for another instruction set than {}", name_of(exec.isa));
  }
  const bool turned = b.transpose() == Transpose::kYes;
  std::vector<GemmProduct> products;
  products.reserve(static_cast<size_t>(b.groups()));
  for (int64_t g = 0; g < b.groups(); ++g) {
    const int64_t first = offsets[static_cast<size_t>(g)];
    GemmProduct p;
    p.m = offsets[static_cast<size_t>(g) + 1] - first;
    if (p.m == 0) continue;
    p.a = operand(a, true, first, gather);
    p.b = operand(b.plain(), turned, g * (turned ? b.n() : b.k()));
    p.n = b.n();
    p.k = b.k();
    p.panels = b.packed() ? host_bytes(b.panels().row(g)) : nullptr;
    p.c = c.row_range(first, 0).data;
    p.c_stride = c.row_stride;
    products.push_back(p);
  }
  run_products(exec, kernels, products, {c.dtype, write});
}

void grouped_gemm_weights(Exec& exec, ConstView a, ConstView b, std::span<const int64_t> offsets,
                          View c, const GroupedWeightOptions& options) {
  WEFT_CHECK(c.shape.dims() == 3 && c.shape[1] == a.width() && c.shape[2] == b.width(),
             "grouped_gemm_weights: a {}, b {} into c {}", a.shape, b.shape, c.shape);
  const int64_t groups = c.shape[0];
  const int64_t rows = offsets.empty() ? 0 : offsets.back();
  check_offsets(offsets, groups, rows);
  WEFT_CHECK(
      has_rows(a, options.gather_a, rows) && has_rows(b, options.gather_b, rows),
      "grouped_gemm_weights: offsets end at {}, a {} with {} gathered, b {} with {} gathered", rows,
      a.shape, options.gather_a.size(), b.shape, options.gather_b.size());
  WEFT_CHECK(a.dtype == b.dtype && (a.dtype == DType::kF32 || a.dtype == DType::kBF16),
             "grouped_gemm_weights of {} with {}", name_of(a.dtype), name_of(b.dtype));
  WEFT_CHECK(
      c.dtype == DType::kF32 || (c.dtype == DType::kBF16 && options.write == Write::kReplace),
      "grouped_gemm_weights into {}", name_of(c.dtype));
  std::vector<GemmProduct> products;
  products.reserve(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = offsets[static_cast<size_t>(g)];
    GemmProduct p;
    p.a = operand(a, false, first, options.gather_a);
    p.b = operand(b, false, first, options.gather_b);
    p.m = a.width();
    p.n = b.width();
    p.k = offsets[static_cast<size_t>(g) + 1] - first;
    p.c = c.row_range(g * p.m, 0).data;
    p.c_stride = c.row_stride;
    products.push_back(p);
  }
  run_products(exec, gemm_kernels(exec.isa, a.dtype), products, {c.dtype, options.write});
}

}  // namespace weft::kernels
