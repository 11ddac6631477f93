#include "kernels/cpu/gemm.h"

#include "kernels/cpu/gemm_vector.h"
#ifdef __AMX_BF16__
#include "kernels/cpu/gemm_amx.h"
#endif

namespace weft::kernels {

const GemmTable& gemm_table(ThisIsa) {
  namespace isa = WEFT_ISA_NAMESPACE;
#ifdef __AMX_BF16__
  static constexpr GemmTable table{isa::kVectorKernels<float>,
                                   isa::kAmxKernels<isa::HardwareTiles>};
#else
  static constexpr GemmTable table{isa::kVectorKernels<float>, isa::kVectorKernels<bf16>};
#endif
  return table;
}

}  // namespace weft::kernels
