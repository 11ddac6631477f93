#pragma once

#include "kernels/gates/rwkv7.h"

// The CPU's side of kernels/gates/rwkv7.h: arguments are checked.
namespace weft::kernels::cpu {

void rwkv7_keys_forward(Exec& exec, const Rwkv7Keys& in, View alpha, View beta, View key);
void rwkv7_keys_backward(Exec& exec, const Rwkv7Keys& in, const Rwkv7KeysBackward& gradients);
void rwkv7_output_forward(Exec& exec, const Rwkv7Output& in, View y);
void rwkv7_output_backward(Exec& exec, const Rwkv7Output& in, const Rwkv7OutputBackward& gradients);

}  // namespace weft::kernels::cpu
