#include "kernels/gates/rwkv7.h"

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/rwkv7.h"

namespace weft::kernels {
namespace {

// A matrix of the extents of `like`.
template <class V>
auto same(const V& x, const ConstView& like, const char* name) {
  check_matrix(x, like.rows(), like.width(), name);
  return rows_of(x);
}

Rwkv7KeysArgs checked(const Rwkv7Keys& in) {
  const int64_t width = in.k.width();
  WEFT_CHECK(in.heads > 0 && width % in.heads == 0, "rwkv7_keys: {} channels, {} heads", width,
             in.heads);
  return {in.heads,
          width / in.heads,
          same(in.k, in.k, "rwkv7_keys: k"),
          same(in.gate, in.k, "rwkv7_keys: gate"),
          vector_of<float>(in.k_k, width, "rwkv7_keys: k_k"),
          vector_of<float>(in.k_a, width, "rwkv7_keys: k_a")};
}

Rwkv7OutputArgs checked(const Rwkv7Output& in) {
  const int64_t width = in.o.width();
  WEFT_CHECK(in.heads > 0 && width % in.heads == 0, "rwkv7_output: {} channels, {} heads", width,
             in.heads);
  return {in.heads,
          width / in.heads,
          in.epsilon,
          same(in.o, in.o, "rwkv7_output: o"),
          same(in.r, in.o, "rwkv7_output: r"),
          same(in.k, in.o, "rwkv7_output: k"),
          same(in.v, in.o, "rwkv7_output: v"),
          same(in.gate, in.o, "rwkv7_output: gate"),
          vector_of<float>(in.weight, width, "rwkv7_output: weight"),
          vector_of<float>(in.bias, width, "rwkv7_output: bias"),
          vector_of<float>(in.r_k, width, "rwkv7_output: r_k")};
}

}  // namespace

void rwkv7_keys_forward(Exec& exec, const Rwkv7Keys& in, View alpha, View beta, View key) {
  if (nothing_in(in.k)) return;
  const Rwkv7KeysArgs args = checked(in);
  const Rows to_alpha = same(alpha, in.k, "rwkv7_keys: alpha"),
             to_beta = same(beta, in.k, "rwkv7_keys: beta"),
             to_key = same(key, in.k, "rwkv7_keys: key");
  const Rwkv7Table& table = table_of<Rwkv7Table>(exec.isa);
  for_blocks(exec, row_blocks(in.k.rows(), in.k.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.keys(args, to_alpha, to_beta, to_key, begin, end);
  });
}

void rwkv7_keys_backward(Exec& exec, const Rwkv7Keys& in, const Rwkv7KeysBackward& g) {
  if (nothing_in(in.k)) return;
  const Rwkv7KeysArgs args = checked(in);
  const int64_t width = in.k.width();
  const Rwkv7KeysBack back{same(g.d_alpha, in.k, "rwkv7_keys: d_alpha"),
                           same(g.d_beta, in.k, "rwkv7_keys: d_beta"),
                           same(g.d_key, in.k, "rwkv7_keys: d_key"),
                           same(g.dk, in.k, "rwkv7_keys: dk"),
                           same(g.d_gate, in.k, "rwkv7_keys: d_gate"),
                           nullptr,
                           nullptr};
  const RowBlocks blocks = sum_blocks(in.k.rows(), width);
  const Tensor k_k = exec.scratch({blocks.count(), width}),
               k_a = exec.scratch({blocks.count(), width});
  const Rwkv7Table& table = table_of<Rwkv7Table>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t block, int64_t begin, int64_t end) {
    Rwkv7KeysBack own = back;
    own.d_k_k = host<float>(k_k) + block * width;
    own.d_k_a = host<float>(k_a) + block * width;
    table.keys_backward(args, own, begin, end);
  });
  add_partials(exec, k_k, vector_of<float>(g.d_k_k, width, "rwkv7_keys: d_k_k"));
  add_partials(exec, k_a, vector_of<float>(g.d_k_a, width, "rwkv7_keys: d_k_a"));
}

void rwkv7_output_forward(Exec& exec, const Rwkv7Output& in, View y) {
  if (nothing_in(in.o)) return;
  const Rwkv7OutputArgs args = checked(in);
  const Rows to = same(y, in.o, "rwkv7_output: y");
  const Rwkv7Table& table = table_of<Rwkv7Table>(exec.isa);
  for_blocks(exec, row_blocks(in.o.rows(), in.o.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.output(args, to, begin, end); });
}

void rwkv7_output_backward(Exec& exec, const Rwkv7Output& in, const Rwkv7OutputBackward& g) {
  if (nothing_in(in.o)) return;
  const Rwkv7OutputArgs args = checked(in);
  const int64_t width = in.o.width();
  const Rwkv7OutputBack back{same(g.dy, in.o, "rwkv7_output: dy"),
                             same(g.d_o, in.o, "rwkv7_output: d_o"),
                             same(g.dr, in.o, "rwkv7_output: dr"),
                             same(g.dk, in.o, "rwkv7_output: dk"),
                             same(g.dv, in.o, "rwkv7_output: dv"),
                             same(g.d_gate, in.o, "rwkv7_output: d_gate"),
                             nullptr,
                             nullptr,
                             nullptr};
  const RowBlocks blocks = sum_blocks(in.o.rows(), width);
  const Tensor weight = exec.scratch({blocks.count(), width}),
               bias = exec.scratch({blocks.count(), width}),
               r_k = exec.scratch({blocks.count(), width});
  const Rwkv7Table& table = table_of<Rwkv7Table>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t block, int64_t begin, int64_t end) {
    Rwkv7OutputBack own = back;
    own.d_weight = host<float>(weight) + block * width;
    own.d_bias = host<float>(bias) + block * width;
    own.d_r_k = host<float>(r_k) + block * width;
    table.output_backward(args, own, begin, end);
  });
  add_partials(exec, weight, vector_of<float>(g.d_weight, width, "rwkv7_output: d_weight"));
  add_partials(exec, bias, vector_of<float>(g.d_bias, width, "rwkv7_output: d_bias"));
  add_partials(exec, r_k, vector_of<float>(g.d_r_k, width, "rwkv7_output: d_r_k"));
}

}  // namespace weft::kernels
