#include "parallel/comm/nccl.h"

#include "core/base/error.h"
#include "core/gpu/plugin.h"

namespace weft {

kernels::LibraryVersion nccl_version() {
  const Plugin plugin("nccl");
  if (!plugin.loaded()) return {"", plugin.why_not()};
  const int v = plugin.function<int()>("weft_nccl_version")();  // 22809
  return {fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100), ""};
}

std::unique_ptr<Communicator> nccl_over(HostGroup& hosts, int device) {
  const Plugin plugin("nccl");
  if (!plugin.loaded()) throw Error("NCCL is {}", plugin.why_not());
  using Make = Communicator*(HostGroup&, int);
  return std::unique_ptr<Communicator>(plugin.function<Make>("weft_nccl_over")(hosts, device));
}

}  // namespace weft
