#pragma once

#include <memory>
#include <string>

#include "parallel/comm/mpi_comm.h"
#include "parallel/layout/launch.h"

namespace weft {

// MPI from its start to its end; one object per process. A single process does not start it. Calls
// come from one thread at a time (MPI_THREAD_SERIALIZED).
class World {
 public:
  explicit World(const Launch& launch, const MpiOptions& options = {});
  ~World();  // waits for the others, unless an exception passes through: then somebody must call
             // abort
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return launch_.rank; }
  int size() const { return launch_.size; }

  // All ranks; a group of one when MPI was not started.
  Communicator& all() { return *all_; }
  // Called by all ranks, see MpiComm::split.
  std::unique_ptr<Communicator> split(int color, int key, const std::string& axis);

  // Threads for this rank: its share of the node's cores.
  int threads();

  // Ends all processes of the job with this code.
  [[noreturn]] void abort(int code);

 private:
  Launch launch_;
  std::unique_ptr<Communicator> all_;
  MpiComm* mpi_ = nullptr;  // `all_`, where MPI runs
};

std::string mpi_version();  // "Open MPI v4.1.4"; needs no MPI running

}  // namespace weft
