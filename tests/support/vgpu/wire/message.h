#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

// Messages from the host process to a device process, in the order of calls: commands of streams,
// which wait in their stream, and notices, which act at once.
namespace vgpu {

enum class Op : uint32_t {
  // Commands of streams.
  kWait,       // nothing but its waits
  kStamp,      // uint32_t: where the time goes
  kLaunch,     // LaunchBody, arguments
  kCopy,       // CopyBody
  kSet,        // SetBody
  kFreeLater,  // AllocationBody: cudaFreeAsync
  kProduct,    // cublaslt/product.h
  kExchange,   // nccl/exchange.h
  // Notices.
  kAllocate,      // AllocationBody
  kFree,          // AllocationBody
  kCommunicator,  // nccl/exchange.h: a new one, an aborted one, one that is gone
};

// A command: `number` in its stream, counted from 1.
struct Ticket {
  uint32_t stream = 0, number = 0;
};

// Failure that VGPU_FAULT requests of a command.
enum class Fault : uint32_t { kNone, kIllegalAddress, kEcc, kDeviceLost, kHang, kNccl };

inline bool is_notice(Op op) { return op >= Op::kAllocate; }

struct Header {
  Op op;
  Ticket ticket;
  Fault fault;
  // Newest command of each stream that is known to come before this one.
  uint32_t clock_entries;
  uint32_t waits;  // tickets that must complete first
};

struct LaunchBody {
  uint32_t kernel;  // in the device's table
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
};

struct CopyBody {
  uint64_t to, from, rows, row_bytes, to_pitch, from_pitch;
  uint64_t checksum;  // of the source when the host made the call
  uint32_t has_checksum;
};

struct SetBody {
  uint64_t to, rows, row_bytes, pitch;
  uint32_t value;
};

struct AllocationBody {
  uint64_t at, bytes;
  uint32_t number;  // counted over the process
  char by[116];     // "cudaMalloc in main"
};

using Bytes = std::vector<std::byte>;

class Writer {
 public:
  template <class T>
  Writer& put(const T& x) {
    static_assert(std::is_trivially_copyable_v<T>);
    return put_bytes(&x, sizeof x);
  }
  Writer& put_bytes(const void* from, size_t count) {
    const size_t end = bytes_.size();
    bytes_.resize(end + count);
    if (count > 0) std::memcpy(bytes_.data() + end, from, count);
    return *this;
  }
  Writer& put_text(const std::string& text) {
    put(static_cast<uint32_t>(text.size()));
    return put_bytes(text.data(), text.size());
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T x;
    std::memcpy(&x, take_bytes(sizeof x).data(), sizeof x);
    return x;
  }
  std::string take_text() {
    const auto bytes = take_bytes(take<uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::span<const std::byte> take_bytes(size_t count) {
    if (count > bytes_.size()) throw std::runtime_error("vgpu: a message is too short");
    const auto front = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return front;
  }
  std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// FNV-1a, eight bytes at a time.
inline uint64_t checksum_of(const void* from, size_t bytes, uint64_t sum = 0xcbf29ce484222325u) {
  const auto* at = static_cast<const unsigned char*>(from);
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    sum = (sum ^ word) * 0x100000001b3u;
  }
  for (; bytes > 0; ++at, --bytes) sum = (sum ^ *at) * 0x100000001b3u;
  return sum;
}

}  // namespace vgpu
