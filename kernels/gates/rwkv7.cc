#include "kernels/gates/rwkv7.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/rwkv7.h"

namespace weft::kernels {
namespace {

// Matrices with the extents of the first.
template <class... Views>
void check_like(ConstView first, std::string_view name, const Views&... others) {
  check_real(first, name);
  (check_matrix(others, first.rows(), first.width(), name), ...);
}
template <class... Views>
void check_channels(ConstView x, std::string_view name, const Views&... vectors) {
  (check_numbers(vectors, x.width(), name), ...);
}

void check(const Rwkv7Keys& in) {
  check_heads(in.k.width(), in.heads, "rwkv7_keys");
  check_like(in.k, "rwkv7_keys: gate", in.gate);
  check_channels(in.k, "rwkv7_keys: k_k, k_a", in.k_k, in.k_a);
}

void check(const Rwkv7Output& in) {
  check_heads(in.o.width(), in.heads, "rwkv7_output");
  check_like(in.o, "rwkv7_output: r, k, v, gate", in.r, in.k, in.v, in.gate);
  check_channels(in.o, "rwkv7_output: weight, bias, r_k", in.weight, in.bias, in.r_k);
}

}  // namespace

void rwkv7_keys_forward(Exec& exec, const Rwkv7Keys& in, View alpha, View beta, View key) {
  if (nothing_in(in.k)) return;
  check(in);
  check_like(in.k, "rwkv7_keys: alpha, beta, key", alpha, beta, key);
  dispatch(exec,
           {.name = "rwkv7_keys_forward",
            .type = in.k.dtype,
            .flops = 13 * elements(in.k),
            .read = bytes_of(in.k, in.gate, in.k_k, in.k_a),
            .written = bytes_of(alpha, beta, key)},
           cpu::rwkv7_keys_forward, in, alpha, beta, key);
}

void rwkv7_keys_backward(Exec& exec, const Rwkv7Keys& in, const Rwkv7KeysBackward& g) {
  if (nothing_in(in.k)) return;
  check(in);
  check_like(in.k, "rwkv7_keys: gradients", g.d_alpha, g.d_beta, g.d_key, g.dk, g.d_gate);
  check_channels(in.k, "rwkv7_keys: d_k_k, d_k_a", g.d_k_k, g.d_k_a);
  dispatch(exec,
           {.name = "rwkv7_keys_backward",
            .type = in.k.dtype,
            .flops = 35 * elements(in.k),
            .read = bytes_of(in.k, in.gate, in.k_k, in.k_a, g.d_alpha, g.d_beta, g.d_key, g.d_k_k,
                             g.d_k_a),
            .written = bytes_of(g.dk, g.d_gate, g.d_k_k, g.d_k_a)},
           cpu::rwkv7_keys_backward, in, g);
}

void rwkv7_output_forward(Exec& exec, const Rwkv7Output& in, View y) {
  if (nothing_in(in.o)) return;
  check(in);
  check_like(in.o, "rwkv7_output: y", y);
  dispatch(exec,
           {.name = "rwkv7_output_forward",
            .type = in.o.dtype,
            .flops = 13 * elements(in.o),
            .read = bytes_of(in.o, in.r, in.k, in.v, in.gate, in.weight, in.bias, in.r_k),
            .written = bytes_of(y)},
           cpu::rwkv7_output_forward, in, y);
}

void rwkv7_output_backward(Exec& exec, const Rwkv7Output& in, const Rwkv7OutputBackward& g) {
  if (nothing_in(in.o)) return;
  check(in);
  check_like(in.o, "rwkv7_output: gradients", g.dy, g.d_o, g.dr, g.dk, g.dv, g.d_gate);
  check_channels(in.o, "rwkv7_output: d_weight, d_bias, d_r_k", g.d_weight, g.d_bias, g.d_r_k);
  dispatch(exec,
           {.name = "rwkv7_output_backward",
            .type = in.o.dtype,
            .flops = 40 * elements(in.o),
            .read = bytes_of(in.o, in.r, in.k, in.v, in.gate, in.weight, in.bias, in.r_k, g.dy,
                             g.d_weight, g.d_bias, g.d_r_k),
            .written = bytes_of(g.d_o, g.dr, g.dk, g.dv, g.d_gate, g.d_weight, g.d_bias, g.d_r_k)},
           cpu::rwkv7_output_backward, in, g);
}

}  // namespace weft::kernels
