#pragma once

#include "kernels/states/decay.h"

// The CPU's side of kernels/states/decay.h: arguments are checked.
namespace weft::kernels::cpu {

void decay_state(Exec& exec, const StateDecay& decay, ConstView state, View out);
void decay_state_sides(Exec& exec, ConstView rows, ConstView columns, ConstView state, View out);
void document_sums(Exec& exec, const DocumentSums& shape, std::span<const int32_t> documents,
                   ConstView x, View sums);
void log_rates(Exec& exec, ConstView rates, ConstView log_dt, View logs);

}  // namespace weft::kernels::cpu
