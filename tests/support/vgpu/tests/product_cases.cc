#include <cmath>

#include "tests/support/vgpu/tests/product_setting.h"

// cuBLASLt by its own interface, against sums in double here.
namespace vgpu::test {
namespace {

// c = alpha op(a) op(b) + beta before, then a row of `bias` to each column; sums are exact here.
void compare(const char* what, Matrix& c, const Matrix& a, bool at, const Matrix& b, bool bt,
             const std::vector<float>& before, float alpha, float beta, double tolerance = 0,
             double (*curve)(double, int) = nullptr) {
  c.read();
  const int k = at ? a.rows : a.columns;
  for (int batch = 0; batch < c.batches; ++batch) {
    for (int i = 0; i < c.rows; ++i) {
      for (int j = 0; j < c.columns; ++j) {
        double sum = 0;
        for (int l = 0; l < k; ++l) {
          sum += double{a.values[at ? a.at(l, i, batch) : a.at(i, l, batch)]} *
                 b.values[bt ? b.at(j, l, batch) : b.at(l, j, batch)];
        }
        double want = alpha * sum;
        if (beta != 0) want += double{beta} * before[c.at(i, j, batch)];
        if (curve != nullptr) want = curve(want, i);
        const double got = c.values[c.at(i, j, batch)];
        expect(std::abs(got - want) <= tolerance * std::max(1.0, std::abs(want)), what);
      }
    }
  }
}

constexpr double kBf16 = 1.0 / 256;

void products_are_right() {
  for (const bool at : {false, true}) {
    for (const bool bt : {false, true}) {
      Product p;
      p.transpose(at ? CUBLAS_OP_T : CUBLAS_OP_N, bt ? CUBLAS_OP_T : CUBLAS_OP_N);
      Matrix a(at ? 5 : 7, at ? 7 : 5, CUDA_R_16BF, 9), b(bt ? 3 : 5, bt ? 5 : 3, CUDA_R_16BF);
      Matrix c(7, 3, CUDA_R_32F, 8);
      p.alpha = 2, p.beta = 1;
      const std::vector<float> before = c.fill(3).values;
      p.run(a.fill(1), b.fill(2), c);
      compare("transposed", c, a, at, b, bt, before, 2, 1);
    }
  }
  Product rows;  // of C order, as C++ has them, with operands in a batch
  Matrix a(4, 6, CUDA_R_32F, 0, CUBLASLT_ORDER_ROW, 3),
      b(6, 5, CUDA_R_32F, 0, CUBLASLT_ORDER_ROW, 3);
  Matrix c(4, 5, CUDA_R_32F, 0, CUBLASLT_ORDER_ROW, 3);
  rows.run(a.fill(4), b.fill(5), c);
  compare("rows in a batch", c, a, false, b, false, {}, 1, 0);
}

void epilogues_are_right() {
  Matrix bias(8, 1, CUDA_R_16BF), a(8, 16, CUDA_R_16BF), b(16, 4, CUDA_R_16BF),
      c(8, 4, CUDA_R_16BF);
  bias.fill(6);
  static std::vector<float> shifts;
  shifts = bias.values;
  Product p;
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_BIAS);
  p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data);
  p.run(a.fill(1), b.fill(2), c);
  compare("relu", c, a, false, b, false, {}, 1, 0, kBf16,
          [](double x, int i) { return std::max(0.0, x + shifts[static_cast<size_t>(i)]); });
}

// e4m3 with scales, and the largest magnitude.
void fp8_is_right() {
  Matrix a(32, 16, CUDA_R_8F_E4M3), b(32, 16, CUDA_R_8F_E4M3), c(16, 16, CUDA_R_16BF);
  float* scales = on_device(3);
  const float values[3] = {0.5f, 4, 0};
  CUDA(cudaMemcpy(scales, values, sizeof values, cudaMemcpyHostToDevice));
  Product p;
  p.transpose(CUBLAS_OP_T, CUBLAS_OP_N);
  p.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales)
      .set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales + 1);
  p.run(a.fill(1), b.fill(2), c);
  compare("fp8", c, a, true, b, false, {}, 2, 0, kBf16);
  CUDA(cudaFree(scales));
}

// tf32 keeps 10 bits: 1 + 2^-11 becomes 1 + 2^-10.
void tf32_rounds() {
  Matrix a(1, 1, CUDA_R_32F), b(1, 1, CUDA_R_32F), c(1, 1, CUDA_R_32F);
  const float x = 1 + 1.0f / 2048, one = 1;
  CUDA(cudaMemcpy(a.data, &x, 4, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(b.data, &one, 4, cudaMemcpyHostToDevice));
  CUDA(cudaDeviceSynchronize());
  Product(CUBLAS_COMPUTE_32F_FAST_TF32).run(a, b, c);
  c.read();
  expect(c.values[0] == 1 + 1.0f / 1024, "tf32");
  Product().run(a, b, c);
  c.read();
  expect(c.values[0] == x, "f32");
}

void heuristics_serve() {
  Matrix a(8, 8, CUDA_R_16BF), b(8, 8, CUDA_R_16BF), c(8, 8, CUDA_R_16BF);
  a.fill(1), b.fill(2);
  Product p;
  const auto found = p.heuristic(a, b, c, 1 << 20);
  void* workspace = nullptr;
  CUDA(cudaMalloc(&workspace, 1 << 20));
  p.run(a, b, c, 0, &found.algo, workspace, 1 << 20);
  compare("with an algorithm", c, a, false, b, false, {}, 1, 0, kBf16);
  CUDA(cudaFree(workspace));
}

void workspace_too_small() {
  Matrix a(8, 8, CUDA_R_16BF), b(8, 8, CUDA_R_16BF), c(8, 8, CUDA_R_16BF);
  Product p;
  const auto found = p.heuristic(a.fill(1), b.fill(2), c, 1 << 20);
  p.run(a, b, c, 0, &found.algo, nullptr, 0);
}

// The heuristic assumed aligned matrices, the view begins in the middle of a row.
void less_aligned_than_promised() {
  Matrix a(8, 9, CUDA_R_16BF), b(8, 8, CUDA_R_16BF), c(8, 8, CUDA_R_16BF);
  a.fill(1), b.fill(2);
  Product p;
  a.columns = 8;
  const uint64_t columns = 8;
  LT(cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, 8));
  const auto told = p.heuristic(a, b, c, 0, 16);
  p.run(a, b, c, 16, &told.algo);
  const auto found = p.heuristic(a, b, c, 0);
  p.run(a, b, c, 16, &found.algo);
}

void fp8_not_transposed() {
  Matrix a(16, 32, CUDA_R_8F_E4M3), b(32, 16, CUDA_R_8F_E4M3), c(16, 16, CUDA_R_16BF);
  Product().run(a.fill(1), b.fill(2), c);
}

void fp8_of_odd_extents() {
  Matrix a(32, 8, CUDA_R_8F_E4M3), b(32, 16, CUDA_R_8F_E4M3), c(8, 16, CUDA_R_16BF);
  Product().transpose(CUBLAS_OP_T, CUBLAS_OP_N).run(a.fill(1), b.fill(2), c);
}

void extents_differ() {
  Matrix a(4, 5, CUDA_R_32F), b(6, 3, CUDA_R_32F), c(4, 3, CUDA_R_32F);
  Product().run(a.fill(1), b.fill(2), c);
}

void types_differ() {
  Matrix a(4, 5, CUDA_R_16BF), b(5, 3, CUDA_R_32F), c(4, 3, CUDA_R_32F);
  Product().run(a.fill(1), b.fill(2), c);
}

void unknown_attribute() {
  void* pointer = nullptr;
  Product().set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointer);
}

void adds_to_what_nobody_wrote() {
  Matrix a(4, 5, CUDA_R_32F), b(5, 3, CUDA_R_32F), c(4, 3, CUDA_R_32F);
  Product p;
  p.beta = 1;
  p.run(a.fill(1), b.fill(2), c);
  CUDA(cudaDeviceSynchronize());
}

void one_workspace_for_two_streams() {
  Matrix a(8, 8, CUDA_R_16BF), b(8, 8, CUDA_R_16BF), c(8, 8, CUDA_R_16BF), d(8, 8, CUDA_R_16BF);
  a.fill(1), b.fill(2);
  CUDA(cudaDeviceSynchronize());
  void* workspace = nullptr;
  CUDA(cudaMalloc(&workspace, 1 << 20));
  Product p, q;
  p.run(a, b, c, 0, nullptr, workspace, 1 << 20);
  q.run(a, b, d, 0, nullptr, workspace, 1 << 20);
  CUDA(cudaDeviceSynchronize());
}

}  // namespace

std::vector<NamedCase> product_cases() {
  return {{"products_are_right", products_are_right},
          {"epilogues_are_right", epilogues_are_right},
          {"fp8_is_right", fp8_is_right},
          {"tf32_rounds", tf32_rounds},
          {"heuristics_serve", heuristics_serve},
          {"workspace_too_small", workspace_too_small},
          {"less_aligned_than_promised", less_aligned_than_promised},
          {"fp8_not_transposed", fp8_not_transposed},
          {"fp8_of_odd_extents", fp8_of_odd_extents},
          {"extents_differ", extents_differ},
          {"types_differ", types_differ},
          {"unknown_attribute", unknown_attribute},
          {"adds_to_what_nobody_wrote", adds_to_what_nobody_wrote},
          {"one_workspace_for_two_streams", one_workspace_for_two_streams}};
}

}  // namespace vgpu::test
