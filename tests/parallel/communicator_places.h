#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/mesh.h"

namespace weft::test {

// Somewhere ranks can run: threads of this process, or the processes that mpirun started.
struct Place {
  std::string name;
  int ranks;
  // Runs the body on every rank of it, with all ranks, a way to split them and memory.
  std::function<void(const std::function<void(Communicator&, const Splitter&, Exec&)>&)> run;
};

// The places of this program: test_parallel has threads and the group of one, test_mpi has
// processes.
std::vector<Place> places();

}  // namespace weft::test
