#include <span>

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/matrix/cpu/gemm.h"
#include "kernels/matrix/gemm.h"

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

// `rows` rows are read, straight or through the index, of which there may be none for none.
void check_rows(ConstView a, ConstView gather, int64_t rows, std::string_view name) {
  if (given(gather)) check_vector<int32_t>(gather, rows, name);
  WEFT_CHECK(rows == 0 || given(gather) || a.rows() == rows, "{}: {} rows, expected {}", name,
             a.rows(), rows);
}

double flops_of(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// Rows of a matrix that a product reads.
int64_t bytes_read(ConstView a, int64_t rows) { return rows * a.width() * size_of(a.dtype); }

}  // namespace

void grouped_gemm(Exec& exec, ConstView a, std::span<const int64_t> offsets,
                  const PackedMatrices& b, View c, Write write, ConstView gather) {
  check_offsets(offsets, b.groups(), c.rows());
  check_rows(a, gather, c.rows(), "grouped_gemm: a");
  WEFT_CHECK(a.width() == b.k() && c.width() == b.n(),
             "grouped_gemm: a {} times [{}, {}] into c {}", a.shape, b.k(), b.n(), c.shape);
  WEFT_CHECK(a.dtype == b.plain().dtype, "grouped_gemm of {} with {}", name_of(a.dtype),
             name_of(b.plain().dtype));
  WEFT_CHECK(c.dtype == DType::kF32 || (c.dtype == DType::kBF16 && write == Write::kReplace),
             "grouped_gemm cannot {} {}", write == Write::kReplace ? "write" : "add into",
             name_of(c.dtype));
  dispatch(exec,
           {.name = "grouped_gemm",
            .type = a.dtype,
            .flops = flops_of(c.rows(), b.n(), b.k()),
            .read = bytes_read(a, c.rows()) + bytes_of(b.plain(), gather) +
                    (write == Write::kAccumulate ? bytes_of(c) : 0),
            .written = bytes_of(c)},
           cpu::grouped_gemm, a, offsets, b, c, write, gather);
}

void grouped_gemm_weights(Exec& exec, ConstView a, ConstView b, std::span<const int64_t> offsets,
                          View c, const GroupedWeightOptions& options) {
  WEFT_CHECK(c.shape.dims() == 3 && c.shape[1] == a.width() && c.shape[2] == b.width(),
             "grouped_gemm_weights: a {}, b {} into c {}", a.shape, b.shape, c.shape);
  const int64_t rows = offsets.empty() ? 0 : offsets.back();
  check_offsets(offsets, c.shape[0], rows);
  check_rows(a, options.gather_a, rows, "grouped_gemm_weights: a");
  check_rows(b, options.gather_b, rows, "grouped_gemm_weights: b");
  WEFT_CHECK(a.dtype == b.dtype && (a.dtype == DType::kF32 || a.dtype == DType::kBF16),
             "grouped_gemm_weights of {} with {}", name_of(a.dtype), name_of(b.dtype));
  WEFT_CHECK(
      c.dtype == DType::kF32 || (c.dtype == DType::kBF16 && options.write == Write::kReplace),
      "grouped_gemm_weights into {}", name_of(c.dtype));
  dispatch(exec,
           {.name = "grouped_gemm_weights",
            .type = a.dtype,
            .flops = flops_of(a.width(), b.width(), rows),
            .read = bytes_read(a, rows) + bytes_read(b, rows) +
                    bytes_of(options.gather_a, options.gather_b) +
                    (options.write == Write::kAccumulate ? bytes_of(c) : 0),
            .written = bytes_of(c)},
           cpu::grouped_gemm_weights, a, b, offsets, c, options);
}

}  // namespace weft::kernels
