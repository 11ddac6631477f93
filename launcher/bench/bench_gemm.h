#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct BenchGemmOptions {
  std::vector<int64_t> sizes = {512, 1024, 2048};
  std::string precision = "both";  // f32, bf16, both
  int threads = 0;                 // 0: every core
  int repetitions = 9;
  bool step_shapes = false;  // also the products of a small training step
  std::string mkl;           // path of libmkl_rt.so
  std::string json;
};

// Compares our matrix products with a library's. Returns the exit code.
int bench_gemm(const BenchGemmOptions& options);

}  // namespace weft
