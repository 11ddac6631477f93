# A kernel's contract and checks (kernels/<group>/<x>.h and <x>.cc) name no device: they touch no bytes, run no tasks and
# choose no instruction set. Bodies do, in kernels/<group>/cpu, which dispatch() calls (kernels/dispatch.h).
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

source_files | { grep -E '^kernels/[a-z]+/[^/]*\.(h|cc)$' || true; } |
  { grep -vE "^kernels/(cpu|cublaslt|programs|te|tile)/" || true; } |
  { grep -vE '_rows\.h$|/row_words\.h$' || true; } |
  matching_lines 'exec\.threads|core/host_access\.h|kernels/cpu/tasks\.h|cpu/isa/|host<|[a-z]\.data[^a-z_(]*[\[+]' |
  expect_none "Kernels whose contract or checks belong to one device"
