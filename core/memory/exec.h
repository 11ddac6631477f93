#pragma once

#include "core/base/isa.h"
#include "core/memory/tensor.h"
#include "core/threads/thread_pool.h"

namespace weft {

// Device, threads and memory of a computation; there is no global current device.
struct Exec {
  ThreadPool& threads;  // for CPU kernels
  Pool& pool;           // for tensors; work runs on its device
  Isa isa = chosen_isa();
  Queue* queue = nullptr;     // work on the device; the CPU has none
  Pool* host_pool = nullptr;  // null: `pool` is the host's

  Device device() const { return pool.device(); }

  Tensor empty(Shape shape, DType dtype = DType::kF32) const {
    return Tensor::empty(pool, shape, dtype);
  }
  Tensor zeros(Shape shape, DType dtype = DType::kF32) const {
    return Tensor::zeros(pool, shape, dtype, Label::kActivations, queue);
  }
  // Scratch of one kernel call.
  Tensor scratch(Shape shape, DType dtype = DType::kF32) const {
    return Tensor::empty(pool, shape, dtype, Label::kScratch);
  }
  // Memory that host code may touch in every run: integers that decide shapes.
  Tensor host(Shape shape, DType dtype, Label label = Label::kActivations) const {
    return Tensor::empty(host_pool == nullptr ? pool : *host_pool, shape, dtype, label);
  }
  // Copies a contiguous view from, to or within the device.
  void copy(ConstView from, View to) const {
    WEFT_CHECK(from.dtype == to.dtype && from.shape.elements() == to.shape.elements() &&
                   from.contiguous() && to.contiguous(),
               "copy of {} {} to {} {}", name_of(from.dtype), from.shape, name_of(to.dtype),
               to.shape);
    pool.backing().copy(queue, from.data, to.data, from.shape.elements() * size_of(from.dtype));
  }
};

}  // namespace weft
