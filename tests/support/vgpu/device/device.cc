#include "tests/support/vgpu/device/device.h"

#include <driver_types.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <ctime>

#include "tests/support/vgpu/check/where.h"
#include "tests/support/vgpu/device/exchanger.h"
#include "tests/support/vgpu/device/numbers.h"
#include "tests/support/vgpu/device/product.h"
#include "tests/support/vgpu/wire/socket.h"

namespace vgpu {
namespace {

// Name of a copy by the ranges of its two sides.
const char* name_of_copy(const CopyBody& copy) {
  const bool from_device = range_of(copy.from) < kMaxDevices;
  const bool to_device = range_of(copy.to) < kMaxDevices;
  if (from_device) return to_device ? "copy device to device" : "copy device to host";
  return to_device ? "copy host to device" : "copy host to host";
}

CommandInfo info_of(const Command& command) {
  Reader r(command.body);
  CommandInfo info{command.header.ticket};
  switch (command.header.op) {
    case Op::kLaunch:
      info.what = nullptr;
      info.kernel_or_bytes = r.take<LaunchBody>().kernel;
      break;
    case Op::kCopy: {
      const auto body = r.take<CopyBody>();
      info.what = name_of_copy(body);
      info.kernel_or_bytes = body.rows * body.row_bytes;
      break;
    }
    case Op::kSet: {
      const auto body = r.take<SetBody>();
      info.what = "memset";
      info.kernel_or_bytes = body.rows * body.row_bytes;
      break;
    }
    case Op::kFreeLater:
      info.what = "cudaFreeAsync";
      info.kernel_or_bytes = r.take<AllocationBody>().bytes;
      break;
    case Op::kProduct: {
      const auto body = r.take<ProductBody>();
      info.what = "product with a result";
      info.kernel_or_bytes =
          static_cast<uint64_t>(body.m * body.n * body.batches) * bytes_of(body.d.type);
      break;
    }
    case Op::kExchange: {
      r.take<ExchangeBody>();
      const auto first = r.take<ExchangeCall>();
      info.what = name_of(first.call);
      info.kernel_or_bytes = first.count * bytes_of(first.type);
      break;
    }
    default: info.what = "event"; break;
  }
  return info;
}

}  // namespace

Device::Device(const DeviceOptions& options, Board& board)
    : options_(options),
      board_(board),
      twins_(options.twins),
      checker_(options.index, options.capacity, options.thorough),
      queues_(board, options.order == 0 ? 0 : options.order + static_cast<uint32_t>(options.index),
              options.longest_delay_us),
      exchanger_(
          std::make_unique<Exchanger>(checker_, board.devices[options.index], options.index)) {
  for (const Kernel& kernel : twins_.kernels()) {
    checker_.kernel_names().push_back(kernel_name(kernel.name));
  }
}
Device::~Device() = default;

void Device::serve(int socket) {
  Inbox inbox(socket);
  for (;;) {
    receive(inbox);
    if (inbox.closed()) return;
    if (exchanger_->busy()) {
      try {
        if (exchanger_->advance()) complete(exchanger_->ticket());
      } catch (const DeviceError& e) {
        fail(e.code, /*requested=*/false, e.what());
      }
    }
    if (const auto stream = queues_.next(exchanger_->busy())) {
      execute(queues_.take(*stream));
      continue;
    }
    int64_t idle = queues_.idle_microseconds();
    if (exchanger_->busy()) idle = Exchanger::kLookMicroseconds;
    const timespec timeout{idle / 1'000'000, idle % 1'000'000 * 1000};
    const Doorbell* bell = exchanger_->doorbell();
    pollfd sources[2] = {{socket, POLLIN, 0}, {bell == nullptr ? -1 : bell->fd(), POLLIN, 0}};
    ppoll(sources, 2, idle < 0 ? nullptr : &timeout, nullptr);
    if (bell != nullptr) bell->answer();
  }
}

void Device::receive(Inbox& inbox) {
  while (const auto message = inbox.next(/*blocking=*/false)) {
    Command command = unpacked(*message);
    if (is_notice(command.header.op)) {
      notice(command);
    } else if (!failed_) {
      queues_.add(std::move(command));
    }
  }
}

void Device::notice(const Command& command) {
  Reader r(command.body);
  switch (command.header.op) {
    case Op::kAllocate: {
      const auto body = r.take<AllocationBody>();
      checker_.allocations(body.at)->add(body);
      checker_.forget(body.at, body.bytes);
      return;
    }
    case Op::kFree: {
      const auto body = r.take<AllocationBody>();
      checker_.allocations(body.at)->remove(body.at, body.by);
      return;
    }
    default: exchanger_->notice(r.take<CommunicatorBody>()); return;
  }
}

void Device::execute(const Command& command) {
  const Ticket ticket = command.header.ticket;
  try {
    checker_.begin(info_of(command), command.clock);
    obey(command.header.fault);
    if (command.header.op == Op::kExchange) {
      if (!exchanger_->begin(command)) return;  // it completes later
    } else {
      perform(command);
    }
    complete(ticket);
  } catch (const DeviceError& e) {
    fail(e.code, command.header.fault != Fault::kNone, e.what());
  } catch (const std::exception& e) {  // of this process: memory, files
    fail(cudaErrorUnknown, /*requested=*/false, e.what());
  }
}

void Device::perform(const Command& command) {
  Reader r(command.body);
  switch (command.header.op) {
    case Op::kLaunch: return launch(command);
    case Op::kCopy: return copy(r.take<CopyBody>());
    case Op::kSet: return set(r.take<SetBody>());
    case Op::kFreeLater: return free_later(r.take<AllocationBody>());
    case Op::kProduct: return multiply(checker_, r.take<ProductBody>());
    case Op::kStamp: {
      timespec now{};
      clock_gettime(CLOCK_MONOTONIC, &now);
      board_.stamps[r.take<uint32_t>() % kMaxTimedEvents] =
          static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
      return;
    }
    default: return;
  }
}

void Device::complete(const Ticket& ticket) {
  queues_.finished(ticket.stream);
  board_.done[ticket.stream].store(ticket.number, std::memory_order_release);
  board_.progress.fetch_add(1);
  if (board_.waiters.load() != 0) wake_waiters(board_.progress);
}

// The sticky error: nothing is executed any more, and every call of the host returns it.
void Device::fail(int code, bool requested, const std::string& text) {
  failed_ = true;
  queues_.drop_all();
  exchanger_->drop();
  DeviceState& state = board_.devices[options_.index];
  state.code = code;
  state.requested = requested;
  std::fprintf(stderr, "vgpu: %s%s\n", text.c_str(), requested ? "\n  (VGPU_FAULT)" : "");
  state.failed.store(1, std::memory_order_release);
  board_.progress.fetch_add(1);
  wake_waiters(board_.progress);
}

void Device::obey(Fault fault) {
  const auto stop = [&](int code, const char* what) {
    throw DeviceError(
        code, fmt::format("device {}: {} in {}", options_.index, what, checker_.running_command()));
  };
  switch (fault) {
    case Fault::kIllegalAddress: stop(cudaErrorIllegalAddress, "illegal address"); break;
    case Fault::kEcc: stop(cudaErrorECCUncorrectable, "uncorrectable ECC error"); break;
    case Fault::kDeviceLost: raise(SIGKILL); break;
    case Fault::kHang:
      for (;;) pause();
    default: break;
  }
}

void Device::free_later(const AllocationBody& body) {
  checker_.access_range(Checker::Direction::kWrites, body.at, body.bytes);
  checker_.allocations(body.at)->remove(body.at, body.by);
}

void Device::set(const SetBody& body) {
  for (uint64_t row = 0; row < body.rows; ++row) {
    const uint64_t to = body.to + row * body.pitch;
    checker_.access_range(Checker::Direction::kWrites, to, body.row_bytes);
    std::memset(reinterpret_cast<void*>(to), static_cast<int>(body.value), body.row_bytes);
  }
}

void Device::copy(const CopyBody& body) {
  uint64_t sum = checksum_of(nullptr, 0);
  for (uint64_t row = 0; row < body.rows; ++row) {
    const uint64_t to = body.to + row * body.to_pitch, from = body.from + row * body.from_pitch;
    checker_.access_range(Checker::Direction::kReads, from, body.row_bytes);
    checker_.access_range(Checker::Direction::kWrites, to, body.row_bytes);
    const auto* source = reinterpret_cast<const void*>(from);
    if (body.has_checksum != 0) sum = checksum_of(source, body.row_bytes, sum);
    std::memmove(reinterpret_cast<void*>(to), source, body.row_bytes);
  }
  if (body.has_checksum != 0 && sum != body.checksum) {
    throw DeviceError(
        cudaErrorLaunchFailure,
        fmt::format("device {}: the host changed the source of an asynchronous copy before it was "
                    "made\n  {}\n  from {}",
                    options_.index, checker_.running_command(),
                    checker_.allocations(body.from)->describe(body.from)));
  }
}

}  // namespace vgpu
