#include "kernels/matrix/cpu/isa/gemm.h"

#include "kernels/matrix/cpu/isa/gemm_vector.h"
#ifdef __AMX_BF16__
#include "kernels/matrix/cpu/isa/gemm_amx.h"
#endif

namespace weft::kernels {

const GemmTable& table(ThisIsa, const GemmTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  constexpr GemmKernels f32 = isa::kVectorKernels<isa::FloatWords<float>>;
#if defined(__AMX_BF16__)
  static constexpr GemmTable table{f32, isa::kAmxKernels<isa::HardwareTiles>};
#elif defined(__AVX512BF16__)
  static constexpr GemmTable table{f32, isa::kVectorKernels<isa::PairWords>};
#else
  static constexpr GemmTable table{f32, isa::kVectorKernels<isa::FloatWords<bf16>>};
#endif
  return table;
}

}  // namespace weft::kernels
