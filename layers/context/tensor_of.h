#pragma once

#include <utility>
#include <vector>

#include "core/memory/host_table.h"

namespace weft {

// Numbers of the host as a tensor [numbers]: for states that are made of them and travel.
template <class T>
Tensor tensor_of(Exec& exec, std::vector<T> numbers) {
  const HostTable<T> table(std::move(numbers));
  const Tensor copy = exec.empty({static_cast<int64_t>(table.size())}, dtype_of<T>());
  exec.copy(table.view(exec), copy);
  return copy;
}

}  // namespace weft
