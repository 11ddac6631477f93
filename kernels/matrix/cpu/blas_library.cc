#include "kernels/matrix/cpu/blas_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "core/host_access.h"

namespace weft::kernels {
namespace {

constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;

template <class Element>
using CblasGemm = void (*)(int order, int a_form, int b_form, int m, int n, int k, float alpha,
                           const Element* a, int a_stride, const Element* b, int b_stride,
                           float beta, float* c, int c_stride);

// Libraries that are not told so start threads of their own.
template <class... Names>
void use_one_thread(void* handle, Names... setters) {
  for (const char* name : {setters...}) {
    if (void* set = dlsym(handle, name)) reinterpret_cast<void (*)(int)>(set)(1);
  }
}

int form(Transpose transpose) { return transpose == Transpose::kYes ? kTransposed : kPlain; }

}  // namespace

std::unique_ptr<BlasLibrary> BlasLibrary::load_default(Isa isa) {
  const char* core = isa >= Isa::kAvx512 ? "SKYLAKEX" : isa == Isa::kAvx2 ? "HASWELL" : nullptr;
  if (core != nullptr) setenv("OPENBLAS_CORETYPE", core, /*overwrite=*/0);
  void* handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  use_one_thread(handle, "openblas_set_num_threads");
  return std::unique_ptr<BlasLibrary>(new BlasLibrary("openblas", handle));
}

std::unique_ptr<BlasLibrary> BlasLibrary::load_mkl(const std::string& path) {
  setenv("MKL_THREADING_LAYER", "SEQUENTIAL", /*overwrite=*/1);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw ConfigError("{}: not a library that loads: {}", path, dlerror());
  auto library = std::unique_ptr<BlasLibrary>(new BlasLibrary("mkl", handle));
  if (library->f32_ == nullptr) {
    throw ConfigError("{} has no cblas_sgemm; give the path of libmkl_rt.so", path);
  }
  return library;
}

BlasLibrary::BlasLibrary(std::string name, void* handle)
    : name_(std::move(name)),
      handle_(handle),
      f32_(dlsym(handle, "cblas_sgemm")),
      bf16_(dlsym(handle, "cblas_gemm_bf16bf16f32")) {}

BlasLibrary::~BlasLibrary() { dlclose(handle_); }

bool BlasLibrary::multiplies(DType dtype) const {
  return (dtype == DType::kBF16 ? bf16_ : f32_) != nullptr;
}

void BlasLibrary::call(ConstView a, ConstView b, View c, GemmOptions options) const {
  const auto number = [](int64_t x) { return static_cast<int>(x); };
  const int m = number(c.rows()), n = number(c.width());
  const int k = number(options.a == Transpose::kYes ? a.rows() : a.width());
  const auto run = [&]<class Element>(CblasGemm<Element> function) {
    function(kRowMajor, form(options.a), form(options.b), m, n, k, 1.0f,
             static_cast<const Element*>(a.data), number(a.row_stride),
             static_cast<const Element*>(b.data), number(b.row_stride),
             options.write == Write::kAccumulate ? 1.0f : 0.0f, host<float>(c),
             number(c.row_stride));
  };
  if (a.dtype == DType::kBF16) {
    run(reinterpret_cast<CblasGemm<uint16_t>>(bf16_));
  } else {
    run(reinterpret_cast<CblasGemm<float>>(f32_));
  }
}

void BlasLibrary::gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options) const {
  WEFT_CHECK(a.dtype == b.dtype && multiplies(a.dtype), "{} does not multiply {} with {}", name_,
             name_of(a.dtype), name_of(b.dtype));
  const int64_t m = c.rows(), parts = exec.threads.size();
  exec.threads.run(parts, [&](int64_t part) {
    const int64_t first = m * part / parts, rows = m * (part + 1) / parts - first;
    if (rows == 0) return;
    const ConstView mine =
        options.a == Transpose::kYes ? a.columns(first, rows) : a.row_range(first, rows);
    call(mine, b, c.row_range(first, rows), options);
  });
}

}  // namespace weft::kernels
