#pragma once

#include <memory>

#include "kernels/gpu_libraries.h"
#include "parallel/comm/communicator.h"

// NCCL, as far as this machine has it: loaded when asked for (core/gpu/plugin.h).
namespace weft {

kernels::LibraryVersion nccl_version();  // needs no driver

// The group of `hosts` over device memory; called by all its ranks. An Error where NCCL or the
// driver is missing.
std::unique_ptr<Communicator> nccl_over(HostGroup& hosts, int device);

}  // namespace weft
