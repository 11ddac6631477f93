# Files under kernels/*/cpu/isa are compiled once per instruction set. A function that such an object shares with
# other files (inline, weak) might be kept by the linker with instructions that the machine does not have.
# So shared functions must live in the namespace of their instruction set. Argument: the built program.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

objects=$(dirname "$1")/kernels/CMakeFiles
if ! command -v nm >/dev/null || ! compgen -G "$objects/weft_cpu_*/*/cpu/isa/*.o" >/dev/null; then
  echo "skipped: no objects of kernels/*/cpu/isa in $objects, or no nm"
  exit 77
fi
for isa in avx2 avx512 avx512_bf16 amx; do
  for object in "$objects/weft_cpu_$isa.dir"/*/cpu/isa/*.o; do
    [ -e "$object" ] || continue  # not among WEFT_LEVELS
    nm -C --defined-only "$object" | awk -v file="${object##*/}" -v isa="$isa" '
      $2 == "W" && index($0, "::" isa "::") == 0 && $0 !~ / DW\.ref\./ {
        sub(/^[0-9a-f]* . /, ""); print file " (" isa "): " $0
      }'
  done
done | expect_none "Functions compiled for one instruction set that other files may end up calling"
