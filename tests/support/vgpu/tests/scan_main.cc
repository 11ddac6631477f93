// vgpu_scan: the scalar scan as nvcc compiled it, forward and backward, against the kernels of the
// CPU. Prints a sum over all bits of its results, which must not depend on the order of anything.
#include <cuda_runtime_api.h>

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/host_access.h"
#include "core/memory/exec.h"
#include "kernels/scan/cuda/scalar_scan.h"
#include "kernels/scan/scalar_scan.h"
#include "tests/support/vgpu/wire/message.h"

namespace {

using namespace weft;
namespace cuda = kernels::cuda;

void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw Error("{}: {}", call, cudaGetErrorString(code));
}
#define CUDA(call) check(call, #call)

// A tensor of the host and its bytes on the device.
class OnDevice {
 public:
  explicit OnDevice(size_t bytes) : bytes_(bytes) { CUDA(cudaMalloc(&data_, bytes)); }
  explicit OnDevice(const Tensor& t) : OnDevice(bytes_of(t)) {
    CUDA(cudaMemcpy(data_, host_bytes(t), bytes_, cudaMemcpyHostToDevice));
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  template <class T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }
  void read(const Tensor& to) const {
    CUDA(cudaMemcpy(host_bytes(to), data_, bytes_, cudaMemcpyDeviceToHost));
  }
  static size_t bytes_of(const Tensor& t) {
    return static_cast<size_t>(t.elements()) * static_cast<size_t>(size_of(t.dtype()));
  }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

struct Case {
  std::vector<int32_t> documents;
  int64_t heads, kv_heads, key, value;
  DType dtype;
};

class Comparison {
 public:
  explicit Comparison(const Case& c) : c_(c) {
    const int64_t tokens = c.documents.back();
    make("q", {tokens, c.heads * c.key}), make("k", {tokens, c.kv_heads * c.key});
    make("v", {tokens, c.kv_heads * c.value}), make("d_out", {tokens, c.heads * c.value});
    const auto n = static_cast<int64_t>(c.documents.size()) - 1;
    log_decay_ = numbers("g", {tokens, c.heads}, DType::kF32, -0.05);
    initial_ = numbers("initial", {n, c.heads, c.key, c.value}, DType::kF32, 1);
    d_final_ = numbers("d_final", {n, c.heads, c.key, c.value}, DType::kF32, 1);
  }

  // The worst error relative to the largest magnitude of the tensor it is in.
  double run(uint64_t& bits) {
    on_the_device();
    on_the_cpu();
    double worst = 0;
    for (const auto& [name, got] : got_) {
      bits = vgpu::checksum_of(host_bytes(got), OnDevice::bytes_of(got), bits);
      worst = std::max(worst, error_of(got, want_.at(name)));
    }
    return worst;
  }

 private:
  Tensor numbers(const char* name, Shape shape, DType dtype, double scale) {
    const RandomStream stream(7, name);
    Tensor t = exec_.empty(shape, dtype);
    for (int64_t i = 0; i < t.elements(); ++i) {
      const double x = stream.normal(static_cast<uint64_t>(i));
      const auto y = static_cast<float>(scale < 0 ? scale * std::abs(x) : scale * x);
      if (dtype == DType::kF32)
        host<float>(t)[i] = y;
      else
        host<bf16>(t)[i] = to_bf16(y);
    }
    return t;
  }
  // In the case's type for the device, and the same numbers in f32 for the CPU.
  void make(const char* name, Shape shape) {
    narrow_[name] = numbers(name, shape, c_.dtype, 1);
    Tensor wide = exec_.empty(shape);
    for (int64_t i = 0; i < wide.elements(); ++i) host<float>(wide)[i] = at(narrow_[name], i);
    wide_[name] = wide;
  }
  static float at(const Tensor& t, int64_t i) {
    return t.dtype() == DType::kF32 ? host<float>(t)[i] : to_float(host<bf16>(t)[i]);
  }
  static double error_of(const Tensor& got, const Tensor& want) {
    double worst = 0, largest = 1e-6;
    for (int64_t i = 0; i < got.elements(); ++i) {
      worst = std::max(worst, std::abs(double{at(got, i)} - at(want, i)));
      largest = std::max(largest, std::abs(double{at(want, i)}));
    }
    return worst / largest;
  }

  void on_the_device();
  void on_the_cpu();

  Case c_;
  Ledger ledger_;
  Pool pool_{ledger_};
  ThreadPool threads_{1};
  Exec exec_{threads_, pool_, chosen_isa(), nullptr, nullptr};
  std::map<std::string, Tensor> narrow_, wide_, got_, want_;
  Tensor log_decay_, initial_, d_final_;
};

void Comparison::on_the_device() {
  const bool narrow = c_.dtype == DType::kBF16;
  std::map<std::string, std::unique_ptr<OnDevice>> in, out;
  for (const auto& [name, t] : narrow_) in[name] = std::make_unique<OnDevice>(t);
  const OnDevice decay(log_decay_), initial(initial_), d_final(d_final_);
  const auto wanted = [&](const char* name, Shape shape, DType dtype) {
    got_[name] = exec_.empty(shape, dtype);
    out[name] = std::make_unique<OnDevice>(OnDevice::bytes_of(got_[name]));
    return out[name]->data();
  };
  cuda::ScanProblem p;
  const auto integers = [](const std::vector<int32_t>& x) {
    auto to = std::make_unique<OnDevice>(x.size() * 4);
    CUDA(cudaMemcpy(to->data(), x.data(), x.size() * 4, cudaMemcpyHostToDevice));
    return to;
  };
  p.heads = static_cast<int>(c_.heads), p.kv_heads = static_cast<int>(c_.kv_heads);
  p.key = static_cast<int>(c_.key), p.value = static_cast<int>(c_.value);
  p.q = {in["q"]->data(), c_.heads * c_.key, narrow};
  p.k = {in["k"]->data(), c_.kv_heads * c_.key, narrow};
  p.v = {in["v"]->data(), c_.kv_heads * c_.value, narrow};
  p.log_decay = {decay.data<float>(), c_.heads};
  p.scale = 0.25f;
  const auto before = cuda::chunks_before(c_.documents, cuda::scan_chunk(p));
  const auto documents = integers(c_.documents), chunks = integers(before);
  p.documents = documents->data<int32_t>(), p.chunks_before = chunks->data<int32_t>();
  p.document_count = static_cast<int>(c_.documents.size()) - 1;
  p.chunk_count = before.back(), p.token_count = c_.documents.back();

  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const OnDevice scratch(
      sizeof(float) *
      static_cast<size_t>(std::max(cuda::scan_forward_scratch(p), cuda::scan_backward_scratch(p))));
  const auto of = [&](const char* name, int64_t heads, int64_t width) {
    return cuda::ScanMatrix<void>{wanted(name, {p.token_count, heads * width}, c_.dtype),
                                  heads * width, narrow};
  };
  cuda::scan_forward(p,
                     {initial.data<float>(), of("out", c_.heads, c_.value),
                      static_cast<float*>(wanted("final", initial_.shape(), DType::kF32))},
                     scratch.data<float>(), stream);
  const cuda::ScanBackward io{
      initial.data<float>(),
      {in["d_out"]->data(), c_.heads * c_.value, narrow},
      d_final.data<float>(),
      of("dq", c_.heads, c_.key),
      of("dk", c_.kv_heads, c_.key),
      of("dv", c_.kv_heads, c_.value),
      {static_cast<float*>(wanted("dg", log_decay_.shape(), DType::kF32)), c_.heads},
      static_cast<float*>(wanted("d_initial", initial_.shape(), DType::kF32))};
  cuda::scan_backward(p, io, scratch.data<float>(), stream);
  CUDA(cudaStreamSynchronize(stream));
  for (const auto& [name, from] : out) from->read(got_.at(name));
  CUDA(cudaStreamDestroy(stream));
}

void Comparison::on_the_cpu() {
  const kernels::ScalarScan in{wide_["q"], wide_["k"],  wide_["v"], log_decay_, c_.documents,
                               c_.heads,   c_.kv_heads, c_.key,     c_.value,   0.25f};
  for (const auto& [name, t] : got_) want_[name] = exec_.empty(t.shape());
  kernels::scalar_scan_forward(exec_, in, initial_, want_["out"], want_["final"]);
  kernels::scalar_scan_backward(
      exec_, in, initial_, wide_["d_out"], d_final_,
      {want_["dq"], want_["dk"], want_["dv"], want_["dg"], want_["d_initial"]});
}

}  // namespace

// Tolerances as in tests/kernels/simt_scalar_scan_test.cc.
int main() {
  const Case cases[] = {{{0, 70}, 2, 2, 16, 24, DType::kF32},
                        {{0, 0, 3, 41, 105}, 4, 2, 17, 33, DType::kF32},
                        {{0, 0, 3, 41, 105}, 4, 2, 17, 33, DType::kBF16}};
  uint64_t bits = 0;
  try {
    for (const Case& c : cases) {
      const double worst = Comparison(c).run(bits);
      if (worst <= (c.dtype == DType::kF32 ? 1e-5 : 1e-2)) continue;
      fmt::print("error: {} tokens in {}: off by {}\n", c.documents.back(), name_of(c.dtype),
                 worst);
      return 4;
    }
  } catch (const std::exception& e) {
    fmt::print("error: {}\n", e.what());
    return 3;
  }
  fmt::print("bits {:016x}\n", bits);
}
