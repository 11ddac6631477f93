#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/vgpu/wire/message.h"

namespace vgpu {

// VGPU_FAULT: what is to go wrong although the program is right. KIND@POINT=N, the Nth time the
// process gets to the point (from 1), several with commas between them, each with :rank=R where
// only one rank of mpirun is meant:
//   out_of_memory@allocation=3   illegal_address@launch=5   ecc@launch=1   hang@launch=2
//   device_lost@launch=4:rank=1  nccl_error@collective=2
class FaultPlan {
 public:
  enum class Point { kAllocation, kLaunch, kCollective };
  enum class Kind { kOutOfMemory, kIllegalAddress, kEcc, kDeviceLost, kHang, kNcclError };

  explicit FaultPlan(const std::string& text);

  bool out_of_memory() { return reached(Point::kAllocation, Kind::kOutOfMemory); }
  bool nccl_error() { return reached(Point::kCollective, Kind::kNcclError); }
  Fault launch();

 private:
  struct Entry {
    Point point;
    Kind kind;
    int64_t at;
  };
  bool reached(Point point, Kind kind);

  std::vector<Entry> entries_;
  int64_t allocations_ = 0, launches_ = 0, collectives_ = 0;
};

}  // namespace vgpu
