#include <nccl.h>

#include <fmt/format.h>

#include "tests/support/vgpu/nccl/group.h"

using namespace vgpu;

namespace {

ElementType type_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return ElementType::kI8;
    case ncclUint8: return ElementType::kU8;
    case ncclInt32: return ElementType::kI32;
    case ncclUint32: return ElementType::kU32;
    case ncclInt64: return ElementType::kI64;
    case ncclUint64: return ElementType::kU64;
    case ncclFloat16: return ElementType::kF16;
    case ncclFloat32: return ElementType::kF32;
    case ncclFloat64: return ElementType::kF64;
    case ncclBfloat16: return ElementType::kBf16;
    case ncclFloat8e4m3: return ElementType::kE4m3;
    case ncclFloat8e5m2: return ElementType::kE5m2;
    default:
      throw NcclError{ncclInvalidArgument, fmt::format("data type {}", static_cast<int>(type))};
  }
}

Reduction reduction_of(ncclRedOp_t op) {
  switch (op) {
    case ncclSum: return Reduction::kSum;
    case ncclProd: return Reduction::kProduct;
    case ncclMax: return Reduction::kMax;
    case ncclMin: return Reduction::kMin;
    case ncclAvg: return Reduction::kAverage;
    default:
      throw NcclError{ncclInvalidArgument, fmt::format("reduction {}", static_cast<int>(op))};
  }
}

struct Arguments {
  Call call;
  const void* from;
  void* to;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int peer = 0;
};
ncclResult_t add(const CallSite& site, const Arguments& a, ncclComm_t comm, cudaStream_t stream) {
  return nccl_api(site, [&](Runtime& r, Lock&) {
    const auto value = [](const void* p) { return reinterpret_cast<uint64_t>(p); };
    Group::of_thread().add(
        r, comm, stream,
        {a.call, type_of(a.type), reduction_of(a.op), a.peer, value(a.from), value(a.to), a.count});
    return ncclSuccess;
  });
}

}  // namespace

extern "C" {

ncclResult_t ncclGroupStart() {
  Group::of_thread().start();
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  VGPU_NCCL({
    Group::of_thread().end(r, lock);
    return ncclSuccess;
  });
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kAllReduce, from, to, count, type, op}, comm, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kReduce, from, to, count, type, op, root}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kBroadcast, from, to, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kBroadcast, buffer, buffer, count, type, ncclSum, root}, comm,
             stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kAllGather, from, to, count, type}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kReduceScatter, from, to, count, type, op}, comm, stream);
}
ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kAllToAll, from, to, count, type}, comm, stream);
}
ncclResult_t ncclGather(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kGather, from, to, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclScatter(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kScatter, from, to, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kSend, from, nullptr, count, type, ncclSum, peer}, comm, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(VGPU_SITE, {Call::kReceive, nullptr, to, count, type, ncclSum, peer}, comm, stream);
}

}  // extern "C"
