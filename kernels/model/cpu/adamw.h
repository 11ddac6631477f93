#pragma once

#include "kernels/model/adamw.h"

// The CPU's side of kernels/model/adamw.h: arguments are checked.
namespace weft::kernels::cpu {

void adamw(Exec& exec, const AdamW& options, View master, ConstView grad, View m, View v,
           View value);

}  // namespace weft::kernels::cpu
