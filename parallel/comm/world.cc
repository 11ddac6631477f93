#include "parallel/comm/world.h"

#include <cstdlib>
#include <cstring>
#include <exception>

#include "parallel/comm/mpi_call.h"
#include "parallel/comm/self_comm.h"

namespace weft {
namespace {

void start_mpi(const Launch& launch) {
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "world",
            "MPI_Init_thread");
  WEFT_CHECK(provided >= MPI_THREAD_SERIALIZED, "this MPI gives thread level {}, needed is {}",
             provided, MPI_THREAD_SERIALIZED);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == launch.rank && size == launch.size) return;
  throw ConfigError(
      "the environment says rank {} of {}, MPI says {} of {}; start all ranks with "
      "one mpirun (or srun --mpi=pmix) of the MPI that weft was built with: {}",
      launch.rank, launch.size, rank, size, mpi_version());
}

}  // namespace

World::World(const Launch& launch, const MpiOptions& options) : launch_(launch) {
  if (launch.size == 1) {
    all_ = std::make_unique<SelfComm>("world");
    return;
  }
  start_mpi(launch);
  auto all = MpiComm::world(options);
  mpi_ = all.get();
  all_ = std::move(all);
}

World::~World() {
  if (mpi_ == nullptr || std::uncaught_exceptions() > 0) return;
  all_.reset();
  MPI_Finalize();
}

std::unique_ptr<Communicator> World::split(int color, int key, const std::string& axis) {
  if (mpi_ != nullptr) return mpi_->split(color, key, axis);
  if (color < 0) return nullptr;
  return std::make_unique<SelfComm>(axis);
}

int World::threads() {
  const CoreMask mine = this_core_mask();
  if (mpi_ == nullptr) return threads_for({mine}, 0);
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, launch_.rank, MPI_INFO_NULL, &node),
      "world", "MPI_Comm_split_type");
  int rank = 0, size = 0;
  MPI_Comm_rank(node, &rank);
  MPI_Comm_size(node, &size);
  const size_t words = mine.size();
  std::vector<uint64_t> all(words * static_cast<size_t>(size));
  const int code = MPI_Allgather(mine.data(), static_cast<int>(words), MPI_UINT64_T, all.data(),
                                 static_cast<int>(words), MPI_UINT64_T, node);
  MPI_Comm_free(&node);
  check_mpi(code, "world", "gathering core masks");
  std::vector<CoreMask> masks;
  for (size_t r = 0; r < static_cast<size_t>(size); ++r) {
    masks.emplace_back(all.begin() + static_cast<int64_t>(r * words),
                       all.begin() + static_cast<int64_t>((r + 1) * words));
  }
  return threads_for(masks, static_cast<size_t>(rank));
}

void World::abort(int code) {
  if (mpi_ != nullptr) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const char* comma = std::strchr(text, ',');
  return {text, comma != nullptr ? static_cast<size_t>(comma - text) : static_cast<size_t>(length)};
}

}  // namespace weft
