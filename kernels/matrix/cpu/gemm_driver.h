#pragma once

#include <span>

#include "core/memory/exec.h"
#include "kernels/matrix/cpu/isa/gemm.h"
#include "kernels/matrix/gemm.h"

// Cuts products into tasks on disjoint parts of their results and runs them on exec's threads. How
// they are cut depends on sizes and threads; the results do not (kernels/matrix/cpu/isa/gemm.h).
namespace weft::kernels {

struct GemmProduct {
  GemmOperand a, b;
  int64_t m = 0, n = 0, k = 0;
  const void* panels = nullptr;  // of b, where they exist already
  void* c = nullptr;
  int64_t c_stride = 0;
};

struct GemmResult {
  DType dtype = DType::kF32;
  Write write = Write::kReplace;
};

const GemmKernels& gemm_kernels(Isa isa, DType dtype);

inline int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

// Elements from one panel of a right operand to the next, and of all its panels.
inline int64_t panel_elements(const GemmKernels& kernels, int64_t k) {
  return round_up(k, kernels.k_step) * kernels.nr;
}
inline int64_t packed_elements(const GemmKernels& kernels, int64_t k, int64_t n) {
  return panel_elements(kernels, k) * (round_up(n, kernels.nr) / kernels.nr);
}

// One right operand to be packed, whole.
struct GemmRight {
  GemmOperand b;
  int64_t first_column = 0, columns = 0, k = 0;
  void* panels = nullptr;
};
void pack_right(Exec& exec, const GemmKernels& kernels, std::span<const GemmRight> rights);

void run_products(Exec& exec, const GemmKernels& kernels, std::span<const GemmProduct> products,
                  GemmResult result);

// A stored matrix as an operand, its stored rows starting at `first_row`, or through an index.
GemmOperand operand(ConstView matrix, bool along_k, int64_t first_row = 0,
                    const int32_t* gather = nullptr);

// The right half of a product: matrix `group` of b.
GemmProduct product_with(const GemmKernels& kernels, const PackedMatrices& b, int64_t group);

}  // namespace weft::kernels
