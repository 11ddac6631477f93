#include "kernels/cpu/gemm.h"

#include "kernels/cpu/gemm_vector.h"

namespace weft::kernels {

const GemmTable& gemm_table(ThisIsa) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr GemmTable table{isa::kVectorKernels<float>, isa::kVectorKernels<bf16>};
  return table;
}

}  // namespace weft::kernels
