#include "tests/parallel/communicator_places.h"

#include "parallel/comm/self_comm.h"
#include "parallel/comm/thread_comm.h"
#include "tests/support/rig.h"

namespace weft::test {

std::vector<Place> places() {
  std::vector<Place> all;
  all.push_back(
      {"self", 1, [](const auto& body) {
         Rig rig;
         SelfComm self("world");
         body(
             self,
             [](int, int, const std::string& axis) { return std::make_unique<SelfComm>(axis); },
             rig.exec);
       }});
  for (const int ranks : {2, 3, 4}) {
    all.push_back({fmt::format("threads{}", ranks), ranks, [ranks](const auto& body) {
                     run_ranks(ranks, [&](ThreadComm& world, Exec& exec) {
                       body(
                           world,
                           [&](int color, int key, const std::string& axis) {
                             return world.split(color, key, axis);
                           },
                           exec);
                     });
                   }});
  }
  return all;
}

}  // namespace weft::test
