#pragma once

#include "core/memory/exec.h"

// Sums over rows or over all elements. They stay on the device and have the same bits for any
// number of threads: blocks of fixed size, added up in order. x may be strided.
namespace weft::kernels {

void column_sum(Exec& exec, ConstView x, View sum);      // sum [d] (f32) += over rows of x [n, d]
void column_mean(Exec& exec, ConstView x, View mean);    // mean [d] (f32) over rows; 0 of no rows
void add_sum(Exec& exec, ConstView x, View sum);         // sum [1] (f64) += of x [n] (f32)
void sum_of_squares(Exec& exec, ConstView x, View sum);  // sum [1] (f64) = of x (f32), in f64

}  // namespace weft::kernels
