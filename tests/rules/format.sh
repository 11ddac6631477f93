# Every C++ file is as .clang-format says (clang-format 14, Debian's), and no line is longer than 100 characters but
# for string literals that cannot be cut.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

{
  project_files h cc cu cuh | xargs -r -d '\n' awk -v q='"' '
    { text = $0; gsub(/[\200-\277]/, "", text) }
    length(text) > 100 && index(text, "R" q "(") == 0 { print FILENAME ":" FNR ": " length(text) " characters" }'
  if ! command -v clang-format >/dev/null; then
    echo "skipped: no clang-format here (Debian: clang-format)" >&2
  else
    project_files h cc cu cuh | xargs -r -d '\n' -n 40 -P 2 clang-format --dry-run 2>&1 |
      { grep -E 'warning: code should be clang-formatted' || true; } | cut -d: -f1 | sort | uniq -c |
      awk '{ print $2 ": " $1 " places differ from clang-format" }'
  fi
} | expect_none "Formatting"
