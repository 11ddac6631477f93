#include "kernels/states/cpu/decay.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/reductions.h"
#include "kernels/states/cpu/isa/states.h"

namespace weft::kernels::cpu {
namespace {

// e^f. There are far fewer factors than numbers in a state, or one for each in Mamba's, whose
// states are small.
Tensor decay_factors(Exec& exec, const StateDecay& decay, int64_t n) {
  const int64_t times = decay.logs.shape.elements();
  const float* t = host<float>(decay.logs);
  if (!given(decay.weights)) {
    const Tensor factors = exec.scratch({times});
    for_blocks(exec, row_blocks(times, 1), [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) host<float>(factors)[i] = std::exp(t[i]);
    });
    return factors;
  }
  const int64_t size = decay.weights.shape.elements(), each = times / n;
  const Tensor factors = exec.scratch({n * size});
  const float* w = host<float>(decay.weights);
  for_blocks(exec, row_blocks(n * size, 1), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t weight = i % size;
      host<float>(factors)[i] = std::exp(t[i / size * each + weight % each] * w[weight]);
    }
  });
  return factors;
}

}  // namespace

void decay_state(Exec& exec, const StateDecay& decay, ConstView state, View out) {
  const Tensor factors = decay_factors(exec, decay, state.shape[0]);
  const int64_t rows = factors.elements(), width = state.shape.elements() / rows;
  const StatesTable& table = table_of<StatesTable>(exec.isa);
  const ScaledRows args{host<float>(factors), host<float>(state), host<float>(out), width};
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.scale_rows(args, begin, end); });
}

void decay_state_sides(Exec& exec, ConstView rows, ConstView columns, ConstView state, View out) {
  const StatesTable& table = table_of<StatesTable>(exec.isa);
  const int64_t height = state.shape[2], width = state.shape[3];
  const ScaledSides args{
      host<float>(rows), host<float>(columns), host<float>(state), host<float>(out), height, width};
  for_blocks(exec, row_blocks(state.rows(), width),
             [&](int64_t, int64_t begin, int64_t end) { table.scale_sides(args, begin, end); });
}

void document_sums(Exec& exec, const DocumentSums& shape, std::span<const int32_t> documents,
                   ConstView x, View sums) {
  const int64_t n = static_cast<int64_t>(documents.size()) - 1, width = shape.width;
  const int64_t group = shape.heads / shape.kv_heads;
  const ReductionTable& table = table_of<ReductionTable>(exec.isa);
  exec.threads.run(n * shape.heads, [&](int64_t index) {
    const auto document = static_cast<size_t>(index / shape.heads);
    const int64_t column = index % shape.heads / group * width;
    float* sum = host<float>(sums) + index * width;
    std::memset(sum, 0, static_cast<size_t>(width) * sizeof(float));
    const Box box{documents[document], documents[document + 1], 0, width};
    table.add_rows(rows_of(x.columns(column, width)), box, sum);
  });
}

void log_rates(Exec& exec, ConstView rates, ConstView log_dt, View logs) {
  const int64_t channels = rates.rows(), states = rates.width();
  const float *r = host<float>(rates), *dt = given(log_dt) ? host<float>(log_dt) : nullptr;
  exec.threads.run(states, [&](int64_t n) {
    float* to = host<float>(logs) + n * channels;
    for (int64_t c = 0; c < channels; ++c) {
      const float rate = -std::exp(r[c * states + n]);
      to[c] = dt == nullptr ? rate : rate * std::exp(dt[c]);
    }
  });
}

}  // namespace weft::kernels::cpu
