# Every preset that the README names is one cmake knows, and every C++ file of this build is compiled with
# all warnings, as errors.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

if [ ! -e CMakePresets.json ]; then
  echo "skipped: no CMakePresets.json here (launcher/setup makes it)"
  exit 77
fi
commands=$(dirname "$1")/compile_commands.json
known=$(cmake --list-presets | sed -n 's/^ *"\([a-z]*\)".*/\1/p')
{
  for preset in release debug asan tsan cuda; do
    grep -qx "$preset" <<<"$known" || echo "cmake --list-presets does not show $preset"
    grep -qw "$preset" README.md || echo "README.md does not name the preset $preset"
  done
  if [ -f "$commands" ]; then
    grep '"command"' "$commands" | { grep -v 'nvcc' || true; } |
      { grep -vE -e '-Wall -Wextra -Werror' || true; } | grep -oE '[^ ]+",?$' |
      sed 's/$/ is compiled without -Wall -Wextra -Werror/' || true
  fi
} | expect_none "Presets and warnings"
