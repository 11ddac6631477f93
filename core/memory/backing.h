#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/device.h"

namespace weft {

struct Queue;  // ordered work of a device, such as a CUDA stream; the CPU has none

// Source of memory for pools and arenas. Addresses are reserved first and backed by memory on
// demand, so that a pool grows in place.
class Backing {
 public:
  virtual ~Backing() = default;

  virtual Device device() const { return {}; }
  virtual void* reserve(int64_t bytes) = 0;           // addresses alone
  virtual void commit(void* at, int64_t bytes) = 0;   // zeroed memory; Error if there is none
  virtual void release(void* at, int64_t bytes) = 0;  // a whole reservation
  // Returns whole pages to the system; they read as zeros afterwards. False: not supported.
  virtual bool discard(void* at, int64_t bytes) = 0;
  virtual void zero(Queue* queue, void* at, int64_t bytes) = 0;
  // Copies between this memory and the host's, or within it. A copy to the host's is complete when
  // the call returns.
  virtual void copy(Queue* queue, const void* from, void* to, int64_t bytes) = 0;

  // Host code touches the memory only between open() and close(). Calls nest.
  virtual void open() {}
  virtual void close() {}
};

// Pages of this process.
class HostBacking : public Backing {
 public:
  void* reserve(int64_t bytes) override;
  void commit(void* at, int64_t bytes) override;
  void release(void* at, int64_t bytes) override;
  bool discard(void* at, int64_t bytes) override;
  void zero(Queue* queue, void* at, int64_t bytes) override;
  void copy(Queue* queue, const void* from, void* to, int64_t bytes) override;
};
HostBacking& host_backing();

// Addresses without memory, for rehearsals: placement and ledger equal those of a real run, and any
// access ends the process. Copies from or to them do nothing.
class AddressBacking final : public HostBacking {
 public:
  void* reserve(int64_t bytes) override;
  void commit(void*, int64_t) override {}
  void release(void* at, int64_t bytes) override;
  bool discard(void*, int64_t) override { return true; }
  void zero(Queue*, void*, int64_t) override {}
  void copy(Queue* queue, const void* from, void* to, int64_t bytes) override;

 private:
  std::mutex mutex_;
  std::vector<std::pair<const char*, const char*>> ranges_;  // first byte, one past the last
};

// Pages that are protected unless open: detects host code that reads or writes tensors outside
// kernels and host communicators.
class GuardedBacking final : public HostBacking {
 public:
  void commit(void* at, int64_t bytes) override;
  void release(void* at, int64_t bytes) override;
  void zero(Queue* queue, void* at, int64_t bytes) override;
  void copy(Queue* queue, const void* from, void* to, int64_t bytes) override;
  void open() override;
  void close() override;

 private:
  struct Range {
    void* at;
    int64_t bytes;
  };
  void protect(int protection);

  std::mutex mutex_;
  std::vector<Range> ranges_;
  int depth_ = 0;
};

}  // namespace weft
