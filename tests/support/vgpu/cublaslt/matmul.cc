#include <cublasLt.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/support/vgpu/cublaslt/sides.h"
#include "tests/support/vgpu/host/api.h"

// cublasLtMatmul and its heuristic: what may run is sent to the device.
namespace vgpu {
namespace {

void set_epilogue(ProductBody& body, const MatmulDesc& desc, const Side& d) {
  using Curve = ProductBody::Curve;
  const uint32_t without_bias = desc.epilogue & ~uint32_t{CUBLASLT_EPILOGUE_BIAS};
  const bool bias = (desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  switch (without_bias) {
    case 0:
    case CUBLASLT_EPILOGUE_DEFAULT: body.curve = Curve::kNone; break;
    case CUBLASLT_EPILOGUE_RELU: body.curve = Curve::kRelu; break;
    case CUBLASLT_EPILOGUE_GELU: body.curve = Curve::kGelu; break;
    default: refuse_product(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue {}", desc.epilogue);
  }
  if (!bias) return;
  if (desc.bias == nullptr) refuse_product(CUBLAS_STATUS_INVALID_VALUE, "no pointer to the bias");
  body.bias = reinterpret_cast<uint64_t>(desc.bias);
  body.bias_type =
      desc.bias_type < 0 ? d.type.type : type_of(static_cast<uint32_t>(desc.bias_type)).type;
}

void set_factors(ProductBody& body, const MatmulDesc& desc, const void* alpha, const void* beta) {
  const bool f64 = desc.scale_type == CUDA_R_64F;
  if (desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE && !f64) {
    body.alpha_at = reinterpret_cast<uint64_t>(alpha);
    body.beta_at = reinterpret_cast<uint64_t>(beta);
  } else if (desc.pointer_mode == CUBLASLT_POINTER_MODE_HOST) {
    body.alpha =
        f64 ? *static_cast<const double*>(alpha) : double{*static_cast<const float*>(alpha)};
    body.beta = f64 ? *static_cast<const double*>(beta) : double{*static_cast<const float*>(beta)};
  } else {
    refuse_product(CUBLAS_STATUS_NOT_SUPPORTED, "pointer mode {}", desc.pointer_mode);
  }
}

ProductBody body_of(const Sides& s, const MatmulDesc& desc) {
  const auto value = [](const void* p) { return reinterpret_cast<uint64_t>(p); };
  ProductBody body{};
  body.a = s.a.matrix(), body.b = s.b.matrix(), body.c = s.c.matrix(), body.d = s.d.matrix();
  body.m = static_cast<int64_t>(s.a.rows()), body.n = static_cast<int64_t>(s.b.columns());
  body.k = static_cast<int64_t>(s.a.columns()), body.batches = s.d.layout.batches;
  body.a_scale = value(desc.a_scale), body.b_scale = value(desc.b_scale);
  body.c_scale = value(desc.c_scale), body.d_scale = value(desc.d_scale);
  body.amax_d = value(desc.amax_d);
  body.round_to_tf32 = desc.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32 ? 1 : 0;
  return body;
}

Sides sides_of(const MatmulDesc& desc, const void* a, const MatrixLayout& la, const void* b,
               const MatrixLayout& lb, const void* c, const MatrixLayout& lc, const void* d,
               const MatrixLayout& ld) {
  return {{"A", a, la, desc.transpose_a != CUBLAS_OP_N, type_of(la.type)},
          {"B", b, lb, desc.transpose_b != CUBLAS_OP_N, type_of(lb.type)},
          {"C", c, lc, false, type_of(lc.type)},
          {"D", d, ld, false, type_of(ld.type)}};
}

// A workspace is overwritten from its start, so that two streams with the same one are found.
constexpr uint64_t kWorkspaceUsed = 16 << 10;

}  // namespace
}  // namespace vgpu

using namespace vgpu;

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const MatmulPreference& p = of(preference);
  try {
    check_product(
        sides_of(of(desc), nullptr, of(a), nullptr, of(b), nullptr, of(c), nullptr, of(d)),
        of(desc), {}, *Runtime::get().options.architecture);
    if (is_fp8(type_of(of(a).type)) &&
        std::min({p.alignment_a, p.alignment_b, p.alignment_c, p.alignment_d}) < 16) {
      refuse_product(CUBLAS_STATUS_NOT_SUPPORTED,
                     "fp8 of matrices that are aligned to less than 16");
    }
  } catch (const Refused& no) {
    return refused(no.status, no.why);
  }
  const Algorithm algorithm{Algorithm::kMark, std::min<uint64_t>(p.workspace_bytes, kWorkspaceUsed),
                            p.alignment_a,    p.alignment_b,
                            p.alignment_c,    p.alignment_d};
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace_bytes;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t la, const void* b,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* c,
                              cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const MatmulDesc& desc = of(description);
  ProductBody body;
  try {
    Alignments alignments;
    if (algo != nullptr) {
      Algorithm algorithm;
      std::memcpy(&algorithm, algo, sizeof algorithm);
      if (algorithm.mark != Algorithm::kMark) {
        refuse_product(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that no heuristic returned");
      }
      alignments = {algorithm.alignment_a, algorithm.alignment_b, algorithm.alignment_c,
                    algorithm.alignment_d};
      if (workspace_bytes < algorithm.workspace_bytes) {
        refuse_product(CUBLAS_STATUS_INVALID_VALUE,
                       "a workspace of {} bytes; the algorithm needs {}", workspace_bytes,
                       algorithm.workspace_bytes);
      }
    }
    const Sides sides = sides_of(desc, a, of(la), b, of(lb), c, of(lc), d, of(ld));
    check_product(sides, desc, alignments, *Runtime::get().options.architecture);
    body = body_of(sides, desc);
    set_epilogue(body, desc, sides.d);
    set_factors(body, desc, alpha, beta);
    if (workspace_bytes > 0 && reinterpret_cast<uint64_t>(workspace) % 16 != 0) {
      refuse_product(CUBLAS_STATUS_INVALID_VALUE, "a workspace that is not aligned to 16 bytes");
    }
    body.workspace = reinterpret_cast<uint64_t>(workspace);
    body.workspace_bytes = std::min<uint64_t>(workspace_bytes, kWorkspaceUsed);
  } catch (const Refused& no) {
    return refused(no.status, no.why);
  }
  const cudaError_t code = api(VGPU_SITE, IfBroken::kFail, [&](Runtime& r, Lock&) {
    r.enqueue(r.stream_of(stream), Op::kProduct, Writer().put(body).bytes());
    return cudaSuccess;
  });
  return code == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
