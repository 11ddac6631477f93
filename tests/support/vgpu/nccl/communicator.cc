#include "tests/support/vgpu/nccl/communicator.h"

#include <unistd.h>

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <mutex>

#include "tests/support/vgpu/nccl/group.h"
#include "tests/support/vgpu/wire/command.h"

namespace vgpu {
namespace {

constinit uint32_t communicators = 0;
std::string newest_error;  // under the runtime's mutex

template <size_t n>
void copy_text(char (&to)[n], const std::string& from) {
  std::snprintf(to, n, "%s", from.c_str());
}

void tell_device(Runtime& r, const ncclComm& comm, CommunicatorBody::What what) {
  CommunicatorBody body{what, comm.number, comm.rank, {}, {}};
  copy_text(body.path, comm.shared->path());
  copy_text(body.name, comm.name);
  r.device(comm.device)
      .send(packed(Op::kCommunicator, {}, Fault::kNone, {}, {}, Writer().put(body).bytes()));
}

// A pause while others come.
void pause(Lock& lock) {
  lock.unlock();
  usleep(500);
  lock.lock();
}

void leave(Runtime& r, Lock& lock, ncclComm* comm) {
  if (comm->has_sent) r.host_wait(lock, comm->device, comm->newest);
  tell_device(r, *comm, CommunicatorBody::What::kLeave);
  if (comm->shared->head().left.fetch_add(1) + 1 == static_cast<uint32_t>(comm->size)) {
    unlink(comm->shared->path().c_str());
  }
  delete comm;
}

// A path that no other communicator has, as an id.
ncclUniqueId new_id() {
  static int made = 0;
  ncclUniqueId id{};
  std::snprintf(id.internal, sizeof id.internal, "%s/vgpu-nccl.%d.%d", meeting_place().c_str(),
                static_cast<int>(getpid()), made++);
  return id;
}

}  // namespace

void keep_error(const std::string& text) {
  newest_error = text;
  std::fprintf(stderr, "vgpu: NCCL: %s\n", text.c_str());
}

ncclComm* join(Runtime& r, const std::string& path, int size, int rank, const ncclConfig_t* config,
               const std::string& otherwise_name) {
  if (size < 1 || size > kMaxRanks || rank < 0 || rank >= size) {
    throw NcclError{ncclInvalidArgument,
                    fmt::format("rank {} of {}; at most {}", rank, size, kMaxRanks)};
  }
  r.check_can_wait("a new communicator");
  r.device(r.current_device());
  auto comm = std::make_unique<ncclComm>();
  comm->number = communicators++;
  comm->rank = rank, comm->size = size, comm->device = r.current_device();
  const bool named = config != nullptr && config->commName != nullptr;
  comm->name = named ? config->commName : otherwise_name;
  comm->blocking = config == nullptr || config->blocking != 0;
  comm->shared = std::make_unique<SharedCommunicator>(path);
  comm->shared->head().size = static_cast<uint32_t>(size);
  r.report.groups[comm->number] = comm->name;

  Member& self = comm->self();
  if (self.here.load() != 0) {
    throw NcclError{ncclInvalidUsage, fmt::format("rank {} of {} joins twice", rank, comm->name)};
  }
  gethostname(self.host, sizeof self.host - 1);
  self.device = comm->device;
  self.process = getpid();
  copy_text(self.doorbell, doorbell_path(getpid(), comm->device));
  tell_device(r, *comm, CommunicatorBody::What::kJoin);
  self.here.store(1);
  return comm.release();
}

void wait_for_all(Lock& lock, const ncclComm& comm) {
  while (comm.blocking && !comm.shared->complete(comm.size)) pause(lock);
  if (comm.blocking) check_duplicates(comm);
}

void check_duplicates(const ncclComm& comm) {
  const Member& self = comm.self();
  for (int other = 0; other < comm.size; ++other) {
    const Member& m = comm.shared->member(other);
    if (other == comm.rank || m.device != self.device || std::strcmp(m.host, self.host) != 0)
      continue;
    throw NcclError{ncclInvalidUsage,
                    fmt::format("ranks {} and {} of {} both use device {} of {}", comm.rank, other,
                                comm.name, self.device, self.host)};
  }
}

}  // namespace vgpu

using namespace vgpu;

namespace {

ncclResult_t new_communicator(ncclComm_t* to, int size, const std::string& path, int rank,
                              const ncclConfig_t* config, const CallSite& site) {
  return nccl_api(site, [&](Runtime& r, Lock& lock) {
    *to = join(r, path, size, rank, config, fmt::format("communicator {}", communicators));
    if (Group::of_thread().waits_later(*to)) return ncclSuccess;
    wait_for_all(lock, **to);
    return (*to)->blocking ? ncclSuccess : ncclInProgress;
  });
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  VGPU_NCCL({
    *id = new_id();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* to, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return new_communicator(to, size, id.internal, rank, config, VGPU_SITE);
}
ncclResult_t ncclCommInitRank(ncclComm_t* to, int size, ncclUniqueId id, int rank) {
  return new_communicator(to, size, id.internal, rank, nullptr, VGPU_SITE);
}
ncclResult_t ncclCommInitAll(ncclComm_t* to, int count, const int* devices) {
  VGPU_NCCL({
    const int before = r.current_device();
    const ncclUniqueId id = new_id();
    const std::string name = fmt::format("communicator {}", communicators);
    for (int i = 0; i < count; ++i) {
      r.set_device(devices == nullptr ? i : devices[i]);
      to[i] = join(r, id.internal, count, i, nullptr, name);
    }
    r.set_device(before);
    check_duplicates(*to[0]);
    return ncclSuccess;
  });
}

// Ranks of one color, in the order of their keys. The parent stores every rank's color and key.
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* to,
                           ncclConfig_t* config) {
  VGPU_NCCL({
    *to = nullptr;
    Member& self = parent->self();
    const uint32_t split = ++parent->splits;
    self.color = color, self.key = key;
    self.splits.store(split);
    int size = 0, rank = 0;
    for (int other = 0; other < parent->size; ++other) {
      const Member& m = parent->shared->member(other);
      while (m.splits.load() < split) pause(lock);
      if (m.color != color) continue;
      ++size;
      if (m.key < key || (m.key == key && other < parent->rank)) ++rank;
    }
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    const int before = r.current_device();
    r.set_device(parent->device);
    *to = join(r, fmt::format("{}.{}.{}", parent->shared->path(), split, color), size, rank, config,
               fmt::format("{} split {} color {}", parent->name, split, color));
    r.set_device(before);
    wait_for_all(lock, **to);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  VGPU_NCCL({
    if (comm->has_sent) r.host_wait(lock, comm->device, comm->newest);
    return ncclSuccess;
  });
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  VGPU_NCCL({
    leave(r, lock, comm);
    return ncclSuccess;
  });
}
// Its calls end without having done their work.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  VGPU_NCCL({
    tell_device(r, *comm, CommunicatorBody::What::kAbort);
    delete comm;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  VGPU_NCCL({
    *error = static_cast<ncclResult_t>(comm->self().error.load());
    if (*error == ncclSuccess && r.sticky(comm->device) != cudaSuccess)
      *error = ncclUnhandledCudaError;
    if (*error == ncclSuccess && !comm->shared->complete(comm->size)) *error = ncclInProgress;
    return ncclSuccess;
  });
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

// Registration speeds up; there is nothing to speed up here.
ncclResult_t ncclCommRegister(const ncclComm_t, void* buffer, size_t, void** handle) {
  *handle = buffer;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "internal error";
  }
}
const char* ncclGetLastError(ncclComm_t) {
  static thread_local std::string text;
  const Lock lock(Runtime::get().mutex);
  text = newest_error;
  return text.c_str();
}

}  // extern "C"
