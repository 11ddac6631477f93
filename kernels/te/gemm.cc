#include "kernels/te/gemm.h"

#include <transformer_engine/gemm.h>

#include "kernels/te/call.h"

namespace weft::kernels::te {

// TransformerEngine counts columns first, as BLAS does: of row-major matrices its "A" is our right
// operand and its "B" our left one, and the product comes out row-major again.
void gemm(CUstream_st* stream, ConstView a, ConstView b, View c, GemmOptions options) {
  constexpr size_t kWorkspace = 32 << 20;  // bytes; what cuBLAS wants on recent devices
  const auto left = wrap_rows(a), right = wrap_rows(b);
  auto out = wrap_rows(c);
  const Workspace memory(stream, kWorkspace);
  transformer_engine::TensorWrapper workspace(memory.data(), std::vector<size_t>{kWorkspace},
                                              transformer_engine::DType::kByte);
  const transformer_engine::MatmulConfigWrapper config;
  const float alpha = 1.0f, beta = options.write == Write::kAccumulate ? 1.0f : 0.0f;
  nvte_cublas_gemm_v2(options.b == Transpose::kYes, options.a == Transpose::kYes, &alpha,
                      right.data(), left.data(), &beta, out.data(), out.data(), workspace.data(),
                      config, stream);
}

}  // namespace weft::kernels::te

// Its library does not tell: the version it was linked with.
extern "C" const char* weft_te_version() { return WEFT_TE_VERSION; }
