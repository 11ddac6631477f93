#pragma once

#include "core/device.h"
#include "core/isa.h"
#include "core/tensor.h"
#include "core/thread_pool.h"

namespace weft {

// Where and with what work runs: passed to everything that computes. There is no current device.
struct Exec {
  ThreadPool& threads;
  Pool& pool;
  Isa isa = chosen_isa();
  Device device;

  Tensor empty(Shape shape, DType dtype = DType::kF32) const {
    return Tensor::empty(pool, shape, dtype);
  }
  Tensor zeros(Shape shape, DType dtype = DType::kF32) const {
    return Tensor::zeros(pool, shape, dtype);
  }
  // Scratch of one kernel call.
  Tensor scratch(Shape shape, DType dtype = DType::kF32) const {
    return Tensor::empty(pool, shape, dtype, Label::kScratch);
  }
};

}  // namespace weft
