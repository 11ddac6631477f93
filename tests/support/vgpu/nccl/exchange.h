#pragma once

#include <cstdint>

// Messages of the NCCL stand-in to its device: Op::kCommunicator and Op::kExchange.
namespace vgpu {

enum class Call : uint32_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSend,
  kReceive,
};
enum class ElementType : uint32_t {
  kI8,
  kU8,
  kI32,
  kU32,
  kI64,
  kU64,
  kF16,
  kF32,
  kF64,
  kBf16,
  kE4m3,
  kE5m2,
};
enum class Reduction : uint32_t { kSum, kProduct, kMax, kMin, kAverage };

const char* name_of(Call call);
const char* name_of(ElementType type);
const char* name_of(Reduction reduction);
uint64_t bytes_of(ElementType type);

struct ExchangeCall {
  Call call;
  ElementType type;
  Reduction reduction;
  int32_t peer;              // root of collectives that have one, other side of sends and receives
  uint64_t from, to, count;  // count as the function of NCCL takes it
};

// One group: its calls make progress together.
struct ExchangeBody {
  uint32_t communicator;  // its number in the host process
  uint32_t calls;         // ExchangeCall each
};

struct CommunicatorBody {
  enum class What : uint32_t { kJoin, kAbort, kLeave } what;
  uint32_t communicator;
  int32_t rank;
  char path[160];  // of SharedCommunicator
  char name[64];
};

}  // namespace vgpu
