#include "kernels/gates/cpu/head_decay.h"

#include <algorithm>

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/head_decay.h"

namespace weft::kernels::cpu {
namespace {

// The arithmetic sees channels, each with an a_log of its own; a head's is repeated for all of its.
struct Channels {
  Channels(Exec& exec, const HeadDecay& gate)
      : heads(gate.a_log.shape.elements()), count(gate.a.width()) {
    const float* of_heads = host<float>(gate.a_log);
    args = {rows_of(gate.a), of_heads, host<float>(gate.dt_bias), count};
    if (width() == 1) return;
    a_log = exec.scratch({count});
    for (int64_t c = 0; c < count; ++c) host<float>(a_log)[c] = of_heads[c / width()];
    args.a_log = host<float>(a_log);
  }
  int64_t width() const { return count / heads; }

  int64_t heads, count;
  Tensor a_log;
  DecayArgs args;
};

}  // namespace

void head_decay_forward(Exec& exec, const HeadDecay& gate, View g) {
  const Channels channels(exec, gate);
  const DecayTable& table = table_of<DecayTable>(exec.isa);
  for_blocks(exec, row_blocks(gate.a.rows(), channels.count),
             [&](int64_t, int64_t begin, int64_t end) {
               table.forward(channels.args, rows_of(g), begin, end);
             });
}

void head_decay_backward(Exec& exec, const HeadDecay& gate, ConstView dg, View da, View d_a_log,
                         View d_dt_bias) {
  const Channels channels(exec, gate);
  const int64_t count = channels.count;
  const RowBlocks blocks = sum_blocks(gate.a.rows(), count);
  const Tensor a_log_parts = exec.scratch({blocks.count(), count});
  const Tensor bias_parts = exec.scratch({blocks.count(), count});
  const DecayTable& table = table_of<DecayTable>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.backward(channels.args,
                   {rows_of(dg), rows_of(da), host<float>(a_log_parts) + b * count,
                    host<float>(bias_parts) + b * count},
                   begin, end);
  });
  add_partials(exec, bias_parts, host<float>(d_dt_bias));
  float* a_log_sum = host<float>(d_a_log);
  if (channels.width() == 1) {
    add_partials(exec, a_log_parts, a_log_sum);
    return;
  }
  const Tensor of_channels = exec.scratch({count});
  float* sums = host<float>(of_channels);
  std::fill_n(sums, count, 0.0f);
  add_partials(exec, a_log_parts, sums);
  for (int64_t c = 0; c < count; ++c) a_log_sum[c / channels.width()] += sums[c];
}

}  // namespace weft::kernels::cpu
