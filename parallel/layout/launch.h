#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft {

// How this process was started, as its environment tells: known before MPI runs, so that a layout
// can be refused without it. One process outside of mpirun and srun is a world of one.
struct Launch {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the processes of this node
};

// Reads what Open MPI's mpirun, or Slurm's srun --mpi=pmix, leave in the environment.
Launch launch_of(const std::function<const char*(const char*)>& environment);
Launch this_launch();

// Cores that a process may run on, one bit each.
using CoreMask = std::vector<uint64_t>;
CoreMask this_core_mask();

// Part `index` of the cores in `mask`, cut into `parts` that differ by one at most; all of them
// where they do not suffice for one each.
CoreMask part_of(const CoreMask& mask, int index, int parts);

// The processes of a node that mpirun has not bound share its cores out among themselves, where
// launcher/run asks for it (WEFT_PIN): nodes of a hostfile have cores that only they know the
// number of. For the calling thread and those it starts.
void pin_to_own_cores(const Launch& launch);

// Threads for the rank whose mask is masks[index], so that the ranks of one node, whose masks these
// are, do not fight: the cores it may use, divided by the ranks that may use the same ones; at
// least one.
int threads_for(const std::vector<CoreMask>& masks, size_t index);

}  // namespace weft
