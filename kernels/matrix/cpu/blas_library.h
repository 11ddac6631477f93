#pragma once

#include <memory>
#include <string>

#include "core/memory/exec.h"
#include "kernels/matrix/gemm.h"

// Matrix products of another library, loaded at run time: ours are measured against them.
namespace weft::kernels {

class BlasLibrary {
 public:
  // Debian's OpenBLAS, told the core type that fits `isa` unless OPENBLAS_CORETYPE is set (it does
  // not recognize newer processors and falls to a slow one). Null where it is not installed.
  static std::unique_ptr<BlasLibrary> load_default(Isa isa);
  // MKL's libmkl_rt.so at `path`, sequential. ConfigError where it cannot be loaded.
  static std::unique_ptr<BlasLibrary> load_mkl(const std::string& path);

  ~BlasLibrary();
  BlasLibrary(const BlasLibrary&) = delete;
  BlasLibrary& operator=(const BlasLibrary&) = delete;

  const std::string& name() const { return name_; }
  bool multiplies(DType dtype) const;

  // c = op(a) op(b), c f32, contiguous rows; the rows of c are cut evenly over exec's threads, one
  // call of the (single-threaded) library each.
  void gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options = {}) const;

 private:
  BlasLibrary(std::string name, void* handle);
  void call(ConstView a, ConstView b, View c, GemmOptions options) const;

  std::string name_;
  void* handle_;
  void* f32_ = nullptr;   // cblas_sgemm
  void* bf16_ = nullptr;  // cblas_gemm_bf16bf16f32
};

}  // namespace weft::kernels
