// The CUDA kernels of the scalar scan, compiled for the emulator.
#include "tests/support/simt/cuda.h"
// The kernels come after the words they are written in.
#include "kernels/scan/cuda/scalar_scan.cu"
