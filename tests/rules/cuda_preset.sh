# The preset cuda insists on NCCL and cuBLASLt, in words that say what to do; release leaves out what is missing.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

[ -e CMakePresets.json ] || { echo "skipped: no CMakePresets.json here (launcher/setup makes it)" && exit 77; }
build=$(dirname "$1")
if ! grep -q '^WEFT_NVCC:.*nvcc$' "$build/CMakeCache.txt"; then
  echo "skipped: no nvcc here"
  exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A library whose place is said to be nowhere is missing. One folder: compilers are looked at once.
configured() { # PRESET key=value...
  local preset=$1 status=0
  shift
  cmake --preset "$preset" -B "$scratch" "${@/#/-D}" >"$scratch/log" 2>&1 || status=$?
  tr -s ' \n' ' ' <"$scratch/log" >"$scratch/line"
  return $status
}
says() { grep -qF "$1" "$scratch/line" || echo "cmake does not say: $1"; }
{
  configured cuda WEFT_NCCL_INCLUDE= && echo "the preset cuda goes on without NCCL"
  says "WEFT_CUDA: NCCL was not found beside"
  says "name it with -DWEFT_NCCL_LIBRARY=FILE and -DWEFT_NCCL_INCLUDE=FOLDER"
  configured cuda WEFT_CUBLASLT_LIBRARY= && echo "the preset cuda goes on without cuBLASLt"
  says "WEFT_CUDA: cuBLASLt was not found beside"
  configured release WEFT_CUDA=OFF || echo "the preset release insists on NCCL or cuBLASLt"
  says "NCCL: not found; left out: its communicator"
  says "cuBLASLt: not found; left out: its products"
} | expect_none "The preset cuda"
