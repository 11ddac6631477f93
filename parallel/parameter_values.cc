#include "parallel/parameter_values.h"

#include "core/initial_values.h"
#include "kernels/rows/elementwise.h"

namespace weft {

void initialize(Exec& exec, ParameterStore& store, uint64_t seed) {
  fill_initial_values(exec, store, seed);
  publish(exec, store);
}

void publish(Exec& exec, ParameterStore& store) {
  for (Parameter& p : store.all()) ++p.version;
  const Tensor values = store.values();
  if (values.dtype() != DType::kF32) kernels::copy(exec, store.masters(), values);
}

void zero_gradients(Exec& exec, ParameterStore& store) {
  kernels::fill(exec, store.gradients(), 0.0f);
}

}  // namespace weft
