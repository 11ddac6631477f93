# CUDA kernels have names outside their file: nvcc hashes anonymous namespaces into names, and the virtual GPU
# (tests/support/vgpu) finds kernels by name. They are launched by launch<kernel>(...), which tells it their parameters.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

{
  project_files cu cuh | grep -v '^tests/kernels/' | xargs -r -d '\n' awk '
    FNR == 1 { hidden = 0 }
    /^namespace \{$/ { hidden = 1 }
    /^\}  \/\/ namespace$/ { hidden = 0 }
    hidden && /__global__/ { print FILENAME ":" FNR ": a kernel in an anonymous namespace" }'
  project_files cu cuh | grep -v '^tests/' | matching_lines '<<<' | sed 's/$/   <- launch<kernel>(...) instead/'
} | expect_none "Kernels"
