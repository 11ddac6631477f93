#pragma once

#include "kernels/cpu/isa/rows.h"

// The words of row programs. A row program, kernels/<group>/<x>_rows.h, holds the arguments of a
// kernel and bodies that go over rows with each_vector, sum_over, load, store, once and functions
// of vectors alone: no lane counts, no intrinsics. It is written once for every engine that knows
// the words. This header finds the engine that a file is compiled for; without one (drivers that
// only fill the arguments) bodies are left out.
#ifdef WEFT_ISA_NAMESPACE
#define WEFT_ROW_BODIES
#include "kernels/cpu/isa/any.h"
#include "kernels/cpu/isa/softplus.h"
#endif
