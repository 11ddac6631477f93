#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// kernels/scan/scalar_scan.h on a CUDA device: the programs of kernels/programs/scalar_scan*.h, in
// three passes over chunks of all heads and documents at once. All pointers are the device's.
// Nothing is allocated, checked or waited for here.
struct CUstream_st;

namespace weft::kernels::cuda {

// [tokens, heads * width], f32 or (narrow) bf16; `stride` elements from row to row.
template <class Byte>
struct ScanMatrix {
  Byte* data = nullptr;
  int64_t stride = 0;
  bool narrow = false;
};
// f32 [tokens, heads]; token_stride 0 for [heads]. No data: zeros, or not wanted.
template <class Float>
struct ScanColumn {
  Float* data = nullptr;
  int64_t token_stride = 0;
};

// See kernels/scan/scalar_scan.h. Products are of bf16 numbers when q is narrow, else of f32 in
// three tf32 products each. Head widths up to 128.
struct ScanProblem {
  ScanMatrix<const void> q, k, v;
  ScanColumn<const float> log_decay;
  const int32_t* documents = nullptr;      // offsets, document_count + 1
  const int32_t* chunks_before = nullptr;  // of `chunks_before`, as many
  int document_count = 0, chunk_count = 0, token_count = 0;
  int heads = 1, kv_heads = 1, key = 0, value = 0;
  float scale = 1.0f;
};

// States are f32 [documents, heads, key, value]; null: zero, or not wanted.
struct ScanForward {
  const float* initial_state = nullptr;
  ScanMatrix<void> out;
  float* final_state = nullptr;
};
struct ScanBackward {
  const float* initial_state = nullptr;
  ScanMatrix<const void> d_out;
  const float* d_final_state = nullptr;
  ScanMatrix<void> dq, dk, dv;
  ScanColumn<float> d_log_decay;
  float* d_initial_state = nullptr;
};

// Whether there is a kernel for these head widths that a device can launch, forward and backward.
// `shared`: bytes of shared memory that a block can have there (the attribute
// MaxSharedMemoryPerBlockOptin). In f32 heads wider than 64 need sm_90.
inline constexpr size_t kSharedOfSm80 = 163 << 10, kSharedOfSm90 = 227 << 10;  // sm_100 has as much
bool scan_fits(const ScanProblem& problem, size_t shared);
int scan_chunk(const ScanProblem& problem);  // tokens of a chunk, by type and head widths
// Chunks in the documents before each one; the last entry is their number.
std::vector<int32_t> chunks_before(std::span<const int32_t> documents, int chunk);

// Floats of scratch.
int64_t scan_forward_scratch(const ScanProblem& problem);
int64_t scan_backward_scratch(const ScanProblem& problem);

void scan_forward(const ScanProblem& problem, const ScanForward& io, float* scratch,
                  CUstream_st* stream);
void scan_backward(const ScanProblem& problem, const ScanBackward& io, float* scratch,
                   CUstream_st* stream);

}  // namespace weft::kernels::cuda
