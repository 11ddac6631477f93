#pragma once

#include <string>

#include "launcher/app/runtime.h"
#include "launcher/checkpoint/checkpoint_lookup.h"

namespace weft {

// A dense model becomes a mixture of experts. The feed-forward of a layer is cut into `slices` of
// its width (1: whole copies), every slice is copied experts / slices times, and the router of a
// copy is the same for all its slices: whichever copies a token prefers, it gets every slice of
// them, with weights that sum to one. The down projection is scaled by `slices` (over route_scale),
// so that the sum is the dense feed-forward's output: the model computes what it computed before.
struct Upcycling {
  int64_t experts = 8;
  int64_t active = 2;  // a multiple of slices
  int64_t slices = 1;
  std::string layers = {};  // letters of the pattern; empty: every letter with ffn = "dense"
  std::string router = "softmax";
};

// Writes the new model as step 0 of a folder of checkpoints, with a config that trains it beside
// it; returns the checkpoint's path.
std::string upcycle(Runtime& runtime, const FoundCheckpoint& dense, const Upcycling& how,
                    const std::string& folder);

}  // namespace weft
