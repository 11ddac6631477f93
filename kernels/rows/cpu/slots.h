#pragma once

#include "kernels/rows/slots.h"

// The CPU's side of kernels/rows/slots.h: arguments are checked.
namespace weft::kernels::cpu {

void slot_writes_forward(Exec& exec, ConstView g, View w);
void slot_writes_backward(Exec& exec, ConstView g, ConstView dw, View dg);

}  // namespace weft::kernels::cpu
