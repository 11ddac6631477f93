#include "kernels/gates/cpu/rwkv7.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/rwkv7.h"

namespace weft::kernels::cpu {
namespace {

Rwkv7KeysArgs args_of(const Rwkv7Keys& in) {
  return {in.heads,         in.k.width() / in.heads, rows_of(in.k),
          rows_of(in.gate), host<float>(in.k_k),     host<float>(in.k_a)};
}

Rwkv7OutputArgs args_of(const Rwkv7Output& in) {
  return {in.heads,
          in.o.width() / in.heads,
          in.epsilon,
          rows_of(in.o),
          rows_of(in.r),
          rows_of(in.k),
          rows_of(in.v),
          rows_of(in.gate),
          host<float>(in.weight),
          host<float>(in.bias),
          host<float>(in.r_k)};
}

}  // namespace

void rwkv7_keys_forward(Exec& exec, const Rwkv7Keys& in, View alpha, View beta, View key) {
  const Rwkv7KeysArgs args = args_of(in);
  const Rwkv7Table& table = table_of<Rwkv7Table>(exec.isa);
  for_blocks(exec, row_blocks(in.k.rows(), in.k.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.keys(args, rows_of(alpha), rows_of(beta), rows_of(key), begin, end);
  });
}

void rwkv7_keys_backward(Exec& exec, const Rwkv7Keys& in, const Rwkv7KeysBackward& g) {
  const Rwkv7KeysArgs args = args_of(in);
  const int64_t width = in.k.width();
  const RowBlocks blocks = sum_blocks(in.k.rows(), width);
  const Tensor k_k = exec.scratch({blocks.count(), width}),
               k_a = exec.scratch({blocks.count(), width});
  const Rwkv7Table& table = table_of<Rwkv7Table>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t block, int64_t begin, int64_t end) {
    const Rwkv7KeysBack back{rows_of(g.d_alpha),
                             rows_of(g.d_beta),
                             rows_of(g.d_key),
                             rows_of(g.dk),
                             rows_of(g.d_gate),
                             host<float>(k_k) + block * width,
                             host<float>(k_a) + block * width};
    table.keys_backward(args, back, begin, end);
  });
  add_partials(exec, k_k, host<float>(g.d_k_k));
  add_partials(exec, k_a, host<float>(g.d_k_a));
}

void rwkv7_output_forward(Exec& exec, const Rwkv7Output& in, View y) {
  const Rwkv7OutputArgs args = args_of(in);
  const Rwkv7Table& table = table_of<Rwkv7Table>(exec.isa);
  for_blocks(exec, row_blocks(in.o.rows(), in.o.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.output(args, rows_of(y), begin, end);
  });
}

void rwkv7_output_backward(Exec& exec, const Rwkv7Output& in, const Rwkv7OutputBackward& g) {
  const Rwkv7OutputArgs args = args_of(in);
  const int64_t width = in.o.width();
  const RowBlocks blocks = sum_blocks(in.o.rows(), width);
  const Tensor weight = exec.scratch({blocks.count(), width}),
               bias = exec.scratch({blocks.count(), width}),
               r_k = exec.scratch({blocks.count(), width});
  const Rwkv7Table& table = table_of<Rwkv7Table>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t block, int64_t begin, int64_t end) {
    const int64_t at = block * width;
    const Rwkv7OutputBack back{rows_of(g.dy),
                               rows_of(g.d_o),
                               rows_of(g.dr),
                               rows_of(g.dk),
                               rows_of(g.dv),
                               rows_of(g.d_gate),
                               host<float>(weight) + at,
                               host<float>(bias) + at,
                               host<float>(r_k) + at};
    table.output_backward(args, back, begin, end);
  });
  add_partials(exec, weight, host<float>(g.d_weight));
  add_partials(exec, bias, host<float>(g.d_bias));
  add_partials(exec, r_k, host<float>(g.d_r_k));
}

}  // namespace weft::kernels::cpu
