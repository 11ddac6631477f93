// The communicator laws over processes: mpirun -n N test_mpi. Every rank runs every test; a rank
// that fails makes the job fail.
#include <gtest/gtest.h>

#include "parallel/comm/world.h"
#include "tests/parallel/communicator_places.h"
#include "tests/support/rig.h"

namespace weft::test {

// Messages as usual, and in pieces as beyond two gigabytes, by a smaller limit.
std::vector<Place> places() {
  std::vector<Place> all;
  const auto add = [&](const std::string& name, const MpiOptions& options) {
    all.push_back({name, this_launch().size, [options](const auto& body) {
                     Rig rig(1);
                     const auto comm = MpiComm::world(options);
                     body(
                         *comm,
                         [&](int color, int key, const std::string& axis) {
                           return comm->split(color, key, axis);
                         },
                         rig.exec);
                   }});
  };
  add("mpi", {});
  add("mpi_in_pieces", {.largest_message = 1000, .block = 5000});
  return all;
}

}  // namespace weft::test

int main(int argc, char** argv) {
  weft::World world(weft::this_launch());
  testing::InitGoogleTest(&argc, argv);
  if (world.rank() != 0)
    GTEST_FLAG_SET(brief, true);  // one rank prints progress, all print failures
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) world.abort(1);
  return 0;
}
