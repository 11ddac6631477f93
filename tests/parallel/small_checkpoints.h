#pragma once

#include <limits>

#include "core/host_access.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/comm/self_comm.h"
#include "tests/support/rig.h"

namespace weft::test {

// Rows 4 rank to 4 rank + 4 of a tensor [4 ranks, 5], all of one value.
inline SavedTensor rows_of(Exec& exec, int rank, int ranks, float value) {
  const Tensor local = exec.empty({4, 5});
  std::fill_n(host<float>(local), local.elements(), value);
  return {"parameters/w", {4 * ranks, 5}, {{{4 * rank, 0}, {4, 5}}}, local};
}

// The one value of a checkpoint of such a tensor; NaN when there are several.
inline float value_in(const FoundCheckpoint& found) {
  Rig rig;
  const Shape global = found.manifest.pieces.at(0).global;
  const Tensor all = rig.exec.zeros(global);
  load_tensors(found, {{"parameters/w", global, {{{0, 0}, global}}, all}});
  const float* x = host<float>(all);
  const bool same = std::all_of(x, x + all.elements(), [&](float y) { return y == *x; });
  return same ? *x : std::numeric_limits<float>::quiet_NaN();
}

// The newest one in which no byte is damaged.
inline std::optional<FoundCheckpoint> newest_whole(const std::string& folder,
                                                   const ReportDamage& report) {
  Rig rig(1);
  SelfHosts self;
  return use_newest(self, published_checkpoints(folder), report,
                    [](const FoundCheckpoint& found) { verify_checkpoint(found.path); });
}
inline FoundCheckpoint newest(const std::string& folder) {
  return newest_whole(folder, [](const std::string&) {}).value();
}

}  // namespace weft::test
