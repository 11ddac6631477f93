#include "tests/support/vgpu/nccl/group.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/support/vgpu/host/copies.h"

namespace vgpu {

Group& Group::of_thread() {
  static thread_local Group group;
  return group;
}

bool Group::waits_later(ncclComm* comm) {
  if (depth_ == 0) return false;
  joining_.push_back(comm);
  return true;
}

void Group::add(Runtime& r, ncclComm* comm, cudaStream_t stream, const ExchangeCall& call) {
  if (comm == nullptr) throw NcclError{ncclInvalidArgument, "no communicator"};
  if (const cudaError_t code = r.sticky(comm->device); code != cudaSuccess) {
    throw NcclError{ncclUnhandledCudaError, cudaGetErrorString(code)};
  }
  for (const uint64_t buffer : {call.from, call.to}) {
    if (buffer == 0 || memory_of(reinterpret_cast<const void*>(buffer)) != Memory::kPageable)
      continue;
    r.mistake(cudaErrorInvalidValue, fmt::format("{} in {} with host memory ({:#x})",
                                                 name_of(call.call), comm->name, buffer));
  }
  if (call.peer >= comm->size || call.peer < 0) {
    throw NcclError{ncclInvalidArgument, fmt::format("{} in {}: rank {} of {}", name_of(call.call),
                                                     comm->name, call.peer, comm->size)};
  }
  entries_.push_back({comm, stream, call});
  if (depth_ == 0) send_all(r);
}

void Group::end(Runtime& r, Lock& lock) {
  if (depth_ == 0) throw NcclError{ncclInvalidUsage, "ncclGroupEnd without a start"};
  if (--depth_ > 0) return;
  for (ncclComm* comm : std::exchange(joining_, {})) wait_for_all(lock, *comm);
  send_all(r);
}

void Group::send_all(Runtime& r) {
  std::vector<ncclComm*> communicators;  // in the order of their first calls
  for (const Entry& e : entries_) {
    if (std::find(communicators.begin(), communicators.end(), e.comm) == communicators.end()) {
      communicators.push_back(e.comm);
    }
  }
  for (ncclComm* comm : communicators) send(r, comm);
  entries_.clear();
}

void Group::send(Runtime& r, ncclComm* comm) {
  std::vector<ExchangeCall> calls;
  cudaStream_t stream = nullptr;
  for (const Entry& e : entries_) {
    if (e.comm != comm) continue;
    if (!calls.empty() && e.stream != stream) {
      r.mistake(cudaErrorInvalidResourceHandle,
                fmt::format("calls of one group of {} in two streams", comm->name));
    }
    stream = e.stream;
    calls.push_back(e.call);
  }
  Stream* found = r.streams.find(stream, comm->device);
  if (found == nullptr || found->device != comm->device) {
    r.mistake(cudaErrorInvalidResourceHandle,
              fmt::format("a call of {}, which is on device {}, in a stream of another", comm->name,
                          comm->device));
  }
  Writer w;
  w.put(ExchangeBody{comm->number, static_cast<uint32_t>(calls.size())});
  for (const ExchangeCall& call : calls) w.put(call);
  r.enqueue(*found, Op::kExchange, w.bytes());
  comm->newest = found->mark();
  comm->has_sent = true;
}

}  // namespace vgpu
