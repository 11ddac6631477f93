#pragma once

#include <cstdint>
#include <vector>

#include "core/base/rng.h"
#include "core/host_access.h"
#include "core/memory/exec.h"

namespace weft::test {

// Common resources of tests of arithmetic: memory, two threads, an Exec.
struct Rig {
  explicit Rig(int threads = 2, Isa isa = chosen_isa())
      : pool(ledger), threads(threads), exec{this->threads, pool, isa, {}} {}

  Ledger ledger;
  Pool pool;
  ThreadPool threads;
  Exec exec;

  // Normal numbers that depend on `name` alone, in the asked precision.
  Tensor normal(std::string_view name, Shape shape, double deviation = 1.0,
                DType dtype = DType::kF32) {
    const RandomStream stream(7, name);
    Tensor t = exec.empty(shape, dtype);
    for (int64_t i = 0; i < t.elements(); ++i) {
      const auto x = static_cast<float>(deviation * stream.normal(static_cast<uint64_t>(i)));
      if (dtype == DType::kF32)
        host<float>(t)[i] = x;
      else
        host<bf16>(t)[i] = to_bf16(x);
    }
    return t;
  }
};

// Any f32 or bf16 view as numbers, row by row.
std::vector<double> numbers(ConstView view);

}  // namespace weft::test
