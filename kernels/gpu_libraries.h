#pragma once

#include <string>

namespace weft::kernels {

// GPU libraries that the kernels are linked to, loaded when asked for (core/gpu/plugin.h). No
// driver is needed to ask.
struct LibraryVersion {
  std::string version;  // "13.1.0"; empty: it cannot be used
  std::string why_not;
};
LibraryVersion cublaslt_version();
LibraryVersion transformer_engine_version();

}  // namespace weft::kernels
