// mpirun -n N training_ranks FOLDER: runs the trainings that a test wrote into FOLDER, on these
// processes (tests/support/rank_jobs.h).
#include <cstdio>
#include <exception>

#include "parallel/comm/world.h"
#include "tests/support/rank_jobs.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  weft::World world(weft::this_launch());
  try {
    weft::test::run_rank_jobs(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", world.rank(), error.what());
    world.abort(3);
  }
  return 0;
}
