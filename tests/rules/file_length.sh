# A file holds one idea; above 600 lines it holds several.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

{ source_files; project_files sh py cmake toml md; } | xargs -r wc -l |
  awk '$1 > 600 && $2 != "total" { print $2 ": " $1 " lines" }' | expect_none "Files above 600 lines"
