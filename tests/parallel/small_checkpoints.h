#pragma once

#include <limits>

#include "parallel/checkpoint.h"
#include "tests/support/rig.h"

namespace weft::test {

// Rows 4 rank to 4 rank + 4 of a tensor [4 ranks, 5], all of one value.
inline SavedTensor rows_of(Exec& exec, int rank, int ranks, float value) {
  const Tensor local = exec.empty({4, 5});
  std::fill_n(local.data<float>(), local.elements(), value);
  return {"parameters/w", {4 * ranks, 5}, {{{4 * rank, 0}, {4, 5}}}, local};
}

// The one value of a checkpoint of such a tensor; NaN when there are several.
inline float value_in(const FoundCheckpoint& found) {
  Rig rig;
  const Shape global = found.manifest.pieces.at(0).global;
  const Tensor all = rig.exec.zeros(global);
  load_tensors(found, {{"parameters/w", global, {{{0, 0}, global}}, all}});
  const float* x = all.data<float>();
  const bool same = std::all_of(x, x + all.elements(), [&](float y) { return y == *x; });
  return same ? *x : std::numeric_limits<float>::quiet_NaN();
}

inline FoundCheckpoint newest(const std::string& folder) {
  return newest_checkpoint(folder, [](const std::string&) {}).value();
}

}  // namespace weft::test
