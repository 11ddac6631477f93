#pragma once

#include <functional>
#include <memory>

#include "core/run_config.h"
#include "launcher/abort.h"
#include "parallel/mesh.h"
#include "parallel/world.h"

namespace weft {

// What a command does on one rank. `doing` is kept up to date, for the message when it fails.
struct RankContext {
  World& world;
  std::shared_ptr<const Mesh> mesh;
  int threads;         // of this rank: train.threads, else its share of the node's cores
  std::string& doing;  // "step 12"
};

// Runs `body` on this rank of the job that this process belongs to (alone, or under mpirun or srun)
// and returns its exit code. The layout is checked before MPI starts. When the body throws, the
// message names rank, coordinates and what it did, and all ranks end with the exit code for it.
int on_ranks(const Config& config, const std::function<int(const RankContext&)>& body);

}  // namespace weft
