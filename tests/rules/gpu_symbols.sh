# What our GPU libraries call of CUDA, NCCL and cuBLASLt is exported by NVIDIA's libraries and by the stand-ins of
# the virtual GPU; and they load with every symbol bound at once. Argument: the built program.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

build=$(dirname "$1")
plugins=()
for plugin in "$build"/libweft_*.so; do [ ! -e "$plugin" ] || plugins+=("$plugin"); done
if ! command -v nm >/dev/null || [ ${#plugins[@]} -eq 0 ] || [ ! -e "$build/vgpu/libcudart.so.13" ]; then
  echo "skipped: no GPU libraries or no virtual GPU in $build (they need nvcc), or no nm"
  exit 77
fi

# The folders of NVIDIA's libraries, as cmake found them.
mapfile -t nvidia < <(sed -nE 's/^WEFT_(CUDART|CUBLASLT|NCCL)_LIBRARY:FILEPATH=(.*)/\2/p' "$build/CMakeCache.txt")
exported() { nm -D --defined-only "$@" 2>/dev/null | awk 'NF == 3 { print $3 }' | sed 's/@.*//' | sort -u; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
exported "${nvidia[@]}" >"$scratch/NVIDIA's libraries"
exported "$build"/vgpu/lib*.so.* >"$scratch/the virtual GPU"
{
  for plugin in "${plugins[@]}"; do
    nm -D --undefined-only "$plugin" | awk '{ print $2 }' | sed 's/@.*//' |
      { grep -E '^(__cuda|cuda|nccl|cublas)' || true; } | sort -u >"$scratch/called"
    for side in "NVIDIA's libraries" "the virtual GPU"; do
      comm -23 "$scratch/called" "$scratch/$side" | sed "s|.*|${plugin##*/} calls &, which $side do not export|"
    done
    version=$(basename "$plugin" .so)
    case ${version#libweft_} in
      nccl) key=nccl ;;
      cublaslt) key=cublaslt ;;
      te) key=transformer_engine ;;
      *) continue ;;
    esac
    LD_BIND_NOW=1 "$1" info --json | grep -qE "\"$key\": *\"[0-9.]+" ||
      echo "${plugin##*/} does not load with LD_BIND_NOW=1"
  done
} | expect_none "Symbols of GPU libraries"
