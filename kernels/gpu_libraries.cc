#include "kernels/gpu_libraries.h"

#include <fmt/format.h>

#include "core/gpu/plugin.h"

namespace weft::kernels {

LibraryVersion cublaslt_version() {
  const Plugin plugin("cublaslt");
  if (!plugin.loaded()) return {"", plugin.why_not()};
  const int v = plugin.function<int()>("weft_cublaslt_version")();  // 130100
  return {fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100), ""};
}

LibraryVersion transformer_engine_version() {
  const Plugin plugin("te");
  if (!plugin.loaded()) return {"", plugin.why_not()};
  return {plugin.function<const char*()>("weft_te_version")(), ""};
}

}  // namespace weft::kernels
