#!/bin/sh
# No object compiled for AVX2, AVX-512 or AMX may define a weak symbol outside of that instruction
# set's namespace: the linker keeps one definition of each weak symbol, and a plain machine could
# meet one with instructions it does not have.   usage: isa_symbols.sh <build directory>
set -eu
build=${1:?usage: isa_symbols.sh <build directory>}
failed=0
for isa in avx2 avx512 amx; do
  folder=$build/kernels/CMakeFiles/weft_cpu_$isa.dir
  objects=$(find "$folder" -name '*.o' 2>/dev/null | sort)
  if [ -z "$objects" ]; then
    echo "no objects in $folder: build the target weft_cpu_$isa first" >&2
    exit 2
  fi
  for object in $objects; do
    # Weak code and data (W, V, u). DW.ref: the runtime's pointer to its exception personality.
    weak=$(nm -C --defined-only "$object" | awk -v space="weft::kernels::$isa::" '
      $2 ~ /^[WVu]$/ {
        name = $0; sub(/^[0-9a-f]+ [WVu] /, "", name)
        if (index(name, space) == 0 && name !~ /^DW\.ref\./) print "  " name
      }')
    if [ -n "$weak" ]; then
      echo "$object defines weak symbols outside of weft::kernels::$isa:" >&2
      echo "$weak" >&2
      failed=1
    fi
  done
done
exit $failed
