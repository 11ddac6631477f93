#include <fmt/format.h>

#include "tests/support/vgpu/cublaslt/product.h"
#include "tests/support/vgpu/host/api.h"
#include "tests/support/vgpu/host/capture.h"
#include "tests/support/vgpu/nccl/exchange.h"
#include "tests/support/vgpu/wire/command.h"

// Enqueues commands with the clock of what comes before them, and waits for them.
namespace vgpu {
namespace {

// The most that a wait is late to notice that its device is gone.
constexpr int64_t kLookMicroseconds = 20'000;

}  // namespace

Stream& Runtime::stream_of(CUstream_st* handle) {
  device(current_device());
  Stream* stream = streams.find(handle, current_device());
  if (stream == nullptr) {
    mistake(cudaErrorInvalidResourceHandle, "a stream that does not exist, or was destroyed");
  }
  if (stream->device != current_device()) {
    mistake(cudaErrorInvalidResourceHandle,
            fmt::format("a stream of device {} while device {} is current", stream->device,
                        current_device()));
  }
  return *stream;
}

// The default stream comes after all blocking streams, and they after it.
void Runtime::order_with_default(Stream& stream, std::vector<Ticket>& waits) {
  const auto after = [&](const Stream& other) {
    const Mark mark = other.mark();
    stream.clock.join(mark.clock);
    waits.push_back(mark.ticket);
  };
  if (stream.is_default) {
    for (const Stream* other : streams.of_device(stream.device)) {
      if (other != &stream && other->blocking && other->newest > 0) after(*other);
    }
  } else if (stream.blocking) {
    const Stream& first = *streams.default_of(stream.device);
    if (first.newest > stream.default_seen) {
      stream.default_seen = first.newest;
      after(first);
    }
  }
}

Fault Runtime::count_exchange(Reader& r) {
  const auto body = r.take<ExchangeBody>();
  Fault fault = Fault::kNone;
  for (uint32_t i = 0; i < body.calls; ++i) {
    const auto call = r.take<ExchangeCall>();
    auto& counted = report.collectives[{report.groups[body.communicator], name_of(call.call)}];
    ++counted.calls;
    counted.bytes += call.count * bytes_of(call.type);
    if (faults.nccl_error()) fault = Fault::kNccl;
  }
  return fault;
}

// For the report; whether the command is to fail.
Fault Runtime::count(const Stream& stream, Op op, const Bytes& body) {
  Reader r(body);
  if (op == Op::kLaunch) {
    const auto launch = r.take<LaunchBody>();
    const auto product = [](const uint32_t(&x)[3]) { return uint64_t{x[0]} * x[1] * x[2]; };
    const std::string& kernel = device(stream.device).readable_name(launch.kernel);
    const uint64_t threads = product(launch.grid) * product(launch.block);
    ++report.launches[kernel];
    report.threads_of[kernel] += threads;
    report.threads += threads;
    return faults.launch();
  }
  if (op == Op::kCopy) {
    const auto copy = r.take<CopyBody>();
    const bool from = range_of(copy.from) < kMaxDevices, to = range_of(copy.to) < kMaxDevices;
    uint64_t& bytes = !from ? report.host_to_device
                      : to  ? report.device_to_device
                            : report.device_to_host;
    bytes += copy.rows * copy.row_bytes;
  } else if (op == Op::kSet) {
    const auto set = r.take<SetBody>();
    report.set += set.rows * set.row_bytes;
  } else if (op == Op::kProduct) {
    const auto p = r.take<ProductBody>();
    ++report.products;
    report.product_flops += 2 * static_cast<uint64_t>(p.m * p.n * p.k * p.batches);
  } else if (op == Op::kExchange) {
    return count_exchange(r);
  }
  return Fault::kNone;
}

Ticket Runtime::enqueue(Stream& stream, Op op, const Bytes& body, std::vector<Ticket> waits) {
  if (stream.capture != nullptr) {
    stream.capture->add(stream, op, body);
    return {};
  }
  const Fault fault = count(stream, op, body);
  order_with_default(stream, waits);
  stream.clock.join(host_clock_);
  const Ticket ticket{stream.slot, ++stream.newest};
  device(stream.device).send(packed(op, ticket, fault, stream.clock.entries(), waits, body));
  stream.clock.join(ticket);
  lend_managed();
  return ticket;
}

void Runtime::wait_in_stream(Stream& stream, const Mark& mark) {
  stream.clock.join(mark.clock);
  stream.clock.join(mark.ticket);
  enqueue(stream, Op::kWait, {}, {mark.ticket});
}

bool Runtime::is_done(const Mark& mark) {
  return board().done[mark.ticket.stream].load(std::memory_order_acquire) >= mark.ticket.number;
}

void Runtime::host_wait(std::unique_lock<std::mutex>& lock, int device, const Mark& mark) {
  Board& b = board();
  for (;;) {
    const uint32_t seen = b.progress.load();
    if (is_done(mark)) break;
    if (const cudaError_t code = sticky(device); code != cudaSuccess) throw CallError{code};
    lock.unlock();
    b.waiters.fetch_add(1);
    wait_for_change(b.progress, seen, kLookMicroseconds);
    b.waiters.fetch_sub(1);
    lock.lock();
  }
  host_knows(mark);
}

void Runtime::wait_for_device(std::unique_lock<std::mutex>& lock, int device) {
  for (const Mark& mark : streams.marks_of_device(device)) host_wait(lock, device, mark);
}

void Runtime::host_knows(const Mark& mark) {
  host_clock_.join(mark.clock);
  host_clock_.join(mark.ticket);
  guard_->host_knows(host_clock_);
  streams.host_knows(host_clock_);
  finish_releases();
  give_managed_back();
}

void Runtime::check_can_wait(const char* what) {
  for (Capture* capture : captures) {
    if (!capture->forbids_this_thread()) continue;
    capture->make_void();
    mistake(cudaErrorStreamCaptureUnsupported, fmt::format("{} while a stream is captured", what));
  }
}

}  // namespace vgpu
