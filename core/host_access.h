#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "core/memory/exec.h"

// Typed access of host code to the bytes of tensors. CPU kernels, host communicators, tests and a
// list of files that move numbers in and out of the program may include it
// (tests/rules/host_access.sh): the rest of the program works on any device because it touches no
// bytes.
namespace weft {

template <class T, class Byte>
auto host(const BasicView<Byte>& view) {
  using Out = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  WEFT_CHECK(view.dtype == dtype_of<T>(), "view is {}, not {}", name_of(view.dtype),
             name_of(dtype_of<T>()));
  WEFT_CHECK(view.device.is_cpu(), "host code reads {} {}, which is on CUDA device {}",
             name_of(view.dtype), view.shape, view.device.index);
  return static_cast<Out*>(view.data);
}
// Const if the handle is const, as in Tensor::view.
template <class T>
T* host(const Tensor& tensor) {
  return host<T>(tensor.view());
}
template <class T>
std::span<T> host_span(const Tensor& tensor) {
  return {host<T>(tensor), static_cast<size_t>(tensor.elements())};
}

template <class Byte>
Byte* host_bytes(const BasicView<Byte>& view) {
  WEFT_CHECK(view.device.is_cpu(), "host code reads {} {}, which is on CUDA device {}",
             name_of(view.dtype), view.shape, view.device.index);
  return view.data;
}
inline void* host_bytes(const Tensor& tensor) { return host_bytes(tensor.view()); }

// While a HostScope exists, host code may touch tensors of `exec`'s pool and of arenas on its
// backing; only a guarded backing (core/memory/backing.h) enforces it.
class HostScope {
 public:
  explicit HostScope(const Exec& exec) : HostScope(exec.pool.backing()) {}
  explicit HostScope(Backing& backing) : backing_(backing) { backing_.open(); }
  ~HostScope() { backing_.close(); }
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  Backing& backing_;
};

}  // namespace weft
