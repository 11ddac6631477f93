#pragma once

#include "kernels/rows/rebased.h"

// The CPU's side of kernels/rows/rebased.h: arguments are checked.
namespace weft::kernels::cpu {

void rebased_features_forward(Exec& exec, const RebasedFeatures& map, ConstView x, ConstView gamma,
                              ConstView beta, View phi);
void rebased_features_backward(Exec& exec, const RebasedFeatures& map,
                               const RebasedFeaturesBackward& in);

}  // namespace weft::kernels::cpu
