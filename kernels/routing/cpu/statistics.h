#pragma once

#include "kernels/routing/statistics.h"

// The CPU's side of kernels/routing/statistics.h: arguments are checked.
namespace weft::kernels::cpu {

void expert_fractions(Exec& exec, ConstView count, ConstView load, View f);
void router_statistics(Exec& exec, const RouterStatistics& in, View numbers);
void forced_choices(Exec& exec, int64_t experts, View index);
void update_expert_load(Exec& exec, const ExpertLoad& in);

}  // namespace weft::kernels::cpu
