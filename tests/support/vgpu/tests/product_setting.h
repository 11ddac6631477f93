#pragma once

#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "tests/support/vgpu/tests/app.h"

// Matrices on the device, and calls of cuBLASLt, for product_cases.cc.
namespace vgpu::test {

inline void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Failed{std::string(call) + ": " + cublasLtGetStatusName(status)};
  }
}
#define LT(call) check(call, #call)

// A matrix of bf16 (or f32, or e4m3) on the device, with its entries as numbers.
struct Matrix {
  Matrix(int rows, int columns, cudaDataType_t type, int leading = 0,
         cublasLtOrder_t order = CUBLASLT_ORDER_COL, int batches = 1)
      : rows(rows),
        columns(columns),
        type(type),
        order(order),
        leading(leading != 0                  ? leading
                : order == CUBLASLT_ORDER_COL ? rows
                                              : columns),
        batches(batches),
        values(static_cast<size_t>(batches) * one()) {
    CUDA(cudaMalloc(&data, values.size() * bytes()));
    LT(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                  static_cast<uint64_t>(columns), this->leading));
    const auto stride = static_cast<int64_t>(one());
    LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                        sizeof order));
    LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                        sizeof batches));
    LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                        &stride, sizeof stride));
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  ~Matrix() {
    cublasLtMatrixLayoutDestroy(layout);
    cudaFree(data);
  }

  size_t one() const {
    return static_cast<size_t>(leading) *
           static_cast<size_t>(order == CUBLASLT_ORDER_COL ? columns : rows);
  }
  size_t bytes() const { return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 1; }
  size_t at(int i, int j, int batch = 0) const {
    const int within = order == CUBLASLT_ORDER_COL ? j * leading + i : i * leading + j;
    return static_cast<size_t>(batch) * one() + static_cast<size_t>(within);
  }
  // Small multiples of 1/4, which every type here holds exactly.
  Matrix& fill(int seed) {
    std::vector<unsigned char> raw(values.size() * bytes());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] =
          static_cast<float>(static_cast<int>((i * 7 + static_cast<size_t>(seed) * 5) % 13) - 6) /
          4;
      uint32_t bits;
      std::memcpy(&bits, &values[i], 4);
      if (bytes() == 4) std::memcpy(&raw[4 * i], &bits, 4);
      if (bytes() == 2)
        raw[2 * i] = static_cast<unsigned char>(bits >> 16),
                raw[2 * i + 1] = static_cast<unsigned char>(bits >> 24);
      if (bytes() == 1) raw[i] = e4m3(values[i]);
    }
    CUDA(cudaMemcpy(data, raw.data(), raw.size(), cudaMemcpyHostToDevice));
    return *this;
  }
  static unsigned char e4m3(float x) {
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, fraction = code & 7;
      const float size = exponent == 0
                             ? std::ldexp(static_cast<float>(fraction), -9)
                             : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
      if ((code < 128 ? size : -size) == x) return static_cast<unsigned char>(code);
    }
    return 0x7f;
  }
  void read() {
    std::vector<unsigned char> raw(values.size() * bytes());
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(raw.data(), data, raw.size(), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits = 0;
      if (bytes() == 4) std::memcpy(&bits, &raw[4 * i], 4);
      if (bytes() == 2) bits = uint32_t{raw[2 * i]} << 16 | uint32_t{raw[2 * i + 1]} << 24;
      std::memcpy(&values[i], &bits, 4);
    }
  }

  int rows, columns;
  cudaDataType_t type;
  cublasLtOrder_t order;
  int leading, batches;
  std::vector<float> values;
  void* data = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
};

struct Product {
  explicit Product(cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
    LT(cublasLtCreate(&handle));
    LT(cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F));
    stream = new_stream();
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
    cudaStreamDestroy(stream);
  }
  template <class T>
  Product& set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    LT(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
    return *this;
  }
  Product& transpose(cublasOperation_t a, cublasOperation_t b) {
    return set(CUBLASLT_MATMUL_DESC_TRANSA, a).set(CUBLASLT_MATMUL_DESC_TRANSB, b);
  }
  void run(const Matrix& a, const Matrix& b, const Matrix& c, size_t offset = 0,
           const cublasLtMatmulAlgo_t* algorithm = nullptr, void* workspace = nullptr,
           size_t workspace_bytes = 0) {
    LT(cublasLtMatmul(handle, desc, &alpha, static_cast<char*>(a.data) + offset, a.layout, b.data,
                      b.layout, &beta, c.data, c.layout, c.data, c.layout, algorithm, workspace,
                      workspace_bytes, stream));
  }
  cublasLtMatmulHeuristicResult_t heuristic(const Matrix& a, const Matrix& b, const Matrix& c,
                                            uint64_t workspace,
                                            std::optional<uint32_t> alignment = {}) {
    cublasLtMatmulPreference_t p;
    LT(cublasLtMatmulPreferenceCreate(&p));
    LT(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                            8));
    if (alignment) {
      LT(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                              &*alignment, 4));
    }
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    LT(cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, c.layout, c.layout, p, 1,
                                      &result, &found));
    expect(found == 1, "heuristic");
    LT(cublasLtMatmulPreferenceDestroy(p));
    return result;
  }

  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cudaStream_t stream;
  float alpha = 1, beta = 0;
};

}  // namespace vgpu::test
