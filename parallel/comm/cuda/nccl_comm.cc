#include "parallel/comm/cuda/nccl_comm.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <vector>

#include "parallel/comm/check_views.h"

namespace weft {
namespace {

void check_cuda(cudaError_t code, std::string_view who, const char* call) {
  if (code == cudaSuccess) return;
  throw Error("{} in {}: {}", who, call, cudaGetErrorString(code));
}

void check_nccl(ncclResult_t code, std::string_view who, const char* call) {
  if (code == ncclSuccess) return;
  throw Error("{} in {}: {} ({})", who, call, ncclGetErrorString(code), ncclGetLastError(nullptr));
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return ncclFloat32;
    case DType::kBF16: return ncclBfloat16;
    case DType::kI32: return ncclInt32;
    case DType::kI64: return ncclInt64;
    default: return ncclFloat64;
  }
}

// An execution queue on a CUDA device is a stream.
cudaStream_t stream_of(const Exec& exec) { return reinterpret_cast<cudaStream_t>(exec.queue); }

size_t count_of(ConstView view) { return static_cast<size_t>(view.shape.elements()); }

// The id of a new group, drawn by its first rank.
ncclUniqueId shared_id(HostGroup& hosts) {
  constexpr size_t kWords = (sizeof(ncclUniqueId) + 7) / 8;
  ncclUniqueId id{};
  std::vector<int64_t> words(kWords);
  if (hosts.rank() == 0) {
    check_nccl(ncclGetUniqueId(&id), hosts.name(), "ncclGetUniqueId");
    std::memcpy(words.data(), &id, sizeof id);
  }
  const std::vector<int64_t> all = hosts.gather(words);
  std::memcpy(&id, all.data(), sizeof id);  // that of rank 0
  return id;
}

}  // namespace

std::unique_ptr<NcclComm> NcclComm::over(HostGroup& hosts, Device device) {
  WEFT_CHECK(!device.is_cpu(), "a NCCL group over {} on a device that is not CUDA's", hosts.name());
  std::unique_ptr<NcclComm> made(new NcclComm(hosts, device));
  const ncclUniqueId id = shared_id(hosts);
  const std::string& who = made->name_;
  check_cuda(cudaSetDevice(device.index), who, "cudaSetDevice");
  check_cuda(cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking), who,
             "cudaStreamCreate");
  check_nccl(ncclCommInitRank(&made->comm_, hosts.size(), id, hosts.rank()), who,
             "ncclCommInitRank");
  return made;
}

NcclComm::~NcclComm() {
  if (comm_ != nullptr) ncclCommDestroy(comm_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void NcclComm::check_errors(const char* call) {
  ncclResult_t later = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &later), name_, call);
  check_nccl(later, name_, call);
}

void NcclComm::follow(const Exec& exec, const char* call) {
  if (exec.queue == nullptr) return;
  cudaEvent_t ready = nullptr;
  check_cuda(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming), name_, call);
  check_cuda(cudaEventRecord(ready, stream_of(exec)), name_, call);
  check_cuda(cudaStreamWaitEvent(stream_, ready, 0), name_, call);
  check_cuda(cudaEventDestroy(ready), name_, call);  // once it has happened
}

// The operations that were enqueued up to its construction.
class NcclComm::Started final : public Pending {
 public:
  Started(NcclComm& comm, const Exec& exec, const char* call)
      : comm_(comm), queue_(stream_of(exec)), call_(call) {
    check_cuda(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), comm.name_, call);
    check_cuda(cudaEventRecord(done_, comm.stream_), comm.name_, call);
  }
  // Others may still write into the memory of an operation that was given up.
  ~Started() override {
    if (!waited_) cudaEventSynchronize(done_);
    cudaEventDestroy(done_);
  }

  void wait() override {
    waited_ = true;
    if (queue_ != nullptr) {
      check_cuda(cudaStreamWaitEvent(queue_, done_, 0), comm_.name_, call_);
    } else {
      check_cuda(cudaEventSynchronize(done_), comm_.name_, call_);
    }
    comm_.check_errors(call_);
  }

 private:
  NcclComm& comm_;
  cudaStream_t queue_;
  const char* call_;
  cudaEvent_t done_ = nullptr;
  bool waited_ = false;
};

void NcclComm::all_reduce(Exec& exec, View inout, ReduceOp op) {
  check_all_reduce(*this, inout, device_);
  follow(exec, "all_reduce");
  check_nccl(ncclAllReduce(inout.data, inout.data, count_of(inout), nccl_type(inout.dtype),
                           op == ReduceOp::kSum ? ncclSum : ncclMax, comm_, stream_),
             name_, "all_reduce");
  Started(*this, exec, "all_reduce").wait();
}

std::unique_ptr<Pending> NcclComm::start_all_gather(Exec& exec, ConstView mine, View all) {
  check_all_gather(*this, mine, all, device_);
  follow(exec, "all_gather");
  check_nccl(
      ncclAllGather(mine.data, all.data, count_of(mine), nccl_type(mine.dtype), comm_, stream_),
      name_, "all_gather");
  return std::make_unique<Started>(*this, exec, "all_gather");
}

std::unique_ptr<Pending> NcclComm::start_reduce_scatter(Exec& exec, ConstView all, View mine) {
  check_reduce_scatter(*this, all, mine, device_);
  follow(exec, "reduce_scatter");
  check_nccl(ncclReduceScatter(all.data, mine.data, count_of(mine), nccl_type(mine.dtype), ncclSum,
                               comm_, stream_),
             name_, "reduce_scatter");
  return std::make_unique<Started>(*this, exec, "reduce_scatter");
}

std::unique_ptr<Pending> NcclComm::start_all_to_all_v(Exec& exec, ConstView send,
                                                      std::span<const int64_t> send_rows, View recv,
                                                      std::span<const int64_t> recv_rows) {
  check_all_to_all(*this, send, send_rows, recv, recv_rows, device_);
  const int64_t width = send.width(), element = size_of(send.dtype);
  const ncclDataType_t type = nccl_type(send.dtype);
  auto* from = static_cast<const char*>(send.data);
  auto* to = static_cast<char*>(recv.data);
  follow(exec, "all_to_all_v");
  check_nccl(ncclGroupStart(), name_, "all_to_all_v");
  for (int r = 0; r < size_; ++r) {
    const int64_t out = send_rows[static_cast<size_t>(r)] * width;
    const int64_t in = recv_rows[static_cast<size_t>(r)] * width;
    // Both sides know the counts: an empty half has no other half.
    if (out > 0) ncclSend(from, static_cast<size_t>(out), type, r, comm_, stream_);
    if (in > 0) ncclRecv(to, static_cast<size_t>(in), type, r, comm_, stream_);
    from += out * element;
    to += in * element;
  }
  check_nccl(ncclGroupEnd(), name_, "all_to_all_v");  // reports errors since the start
  return std::make_unique<Started>(*this, exec, "all_to_all_v");
}

std::unique_ptr<Pending> NcclComm::start(Exec& exec, std::span<const Transfer> together) {
  for (const Transfer& one : together) check_transfer(*this, one, device_);
  follow(exec, "transfer");
  check_nccl(ncclGroupStart(), name_, "transfer");
  for (const Transfer& one : together) {
    const ncclDataType_t type = nccl_type(one.data.dtype);
    if (one.kind == Transfer::Kind::kSend)
      ncclSend(one.data.data, count_of(one.data), type, one.peer, comm_, stream_);
    else
      ncclRecv(one.data.data, count_of(one.data), type, one.peer, comm_, stream_);
  }
  check_nccl(ncclGroupEnd(), name_, "transfer");
  return std::make_unique<Started>(*this, exec, "transfer");
}

}  // namespace weft

// What parallel/comm/nccl.cc finds here.
extern "C" {

int weft_nccl_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

weft::Communicator* weft_nccl_over(weft::HostGroup& hosts, int device) {
  return weft::NcclComm::over(hosts, {weft::Device::Kind::kCuda, device}).release();
}
}
