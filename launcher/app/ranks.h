#pragma once

#include <functional>
#include <memory>

#include "core/config/run_config.h"
#include "launcher/app/abort.h"
#include "parallel/comm/mesh.h"
#include "parallel/comm/world.h"

namespace weft {

// Environment of a command on one rank. The command keeps mesh->activity() up to date: messages
// print it when this rank fails or when others wait for it.
struct RankContext {
  World& world;
  std::shared_ptr<const Mesh> mesh;
  int threads;  // threads of this rank: train.threads, else its share of the node's cores
};

// Runs `body` on this rank of the job that this process belongs to (alone, or under mpirun or srun)
// and returns its exit code. The layout is checked before MPI starts. When the body throws, the
// message names rank, coordinates and activity, and all ranks end with its exit code. A watchdog
// names ranks that others wait for (run.slow_seconds, run.watchdog_seconds), by files in the run's
// folder: `before_files` has run on all ranks before any of them writes there.
int on_ranks(const Config& config, const std::function<int(const RankContext&)>& body,
             const std::function<void(const Mesh&)>& before_files = {});

}  // namespace weft
