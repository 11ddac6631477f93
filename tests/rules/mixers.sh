# mixers.def and the files beside it name the same mixers: a line without a file would not build, a file
# without a line would never be used. And a config shows how each is named.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

cd layers/mixers
listed=$(sed -nE 's/^WEFT_MIXER\(([a-z0-9_]+),.*/\1/p' mixers.def)
{
  for name in $listed; do
    if ! grep -qF "mixer = \"$name\"" ../../configs/every-mixer.toml; then
      echo "configs/every-mixer.toml has no layer of $name"
    fi
    if [ ! -f "$name.cc" ]; then echo "mixers.def names $name, but there is no $name.cc"; fi
  done
  printf '%s\n' "$listed" | sort | uniq -d | sed 's/$/ stands in mixers.def twice/; /^ /d'
  # What carries the mixers rather than being one: see the source list in layers/CMakeLists.txt.
  for file in *.cc; do
    case ${file%.cc} in '*' | registry | linear_* | memory_*) continue ;; esac
    if ! grep -qx "${file%.cc}" <<<"$listed"; then echo "$file has no line in mixers.def"; fi
  done
} | expect_none "Mixers"
