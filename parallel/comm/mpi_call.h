#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <string_view>

#include "core/base/error.h"

namespace weft {

// MPI's own text with who called what.
inline void check_mpi(int code, std::string_view who, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error("{} in {}: {}", who, call, std::string_view(text, static_cast<size_t>(length)));
}

}  // namespace weft
