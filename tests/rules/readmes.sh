# Every folder explains itself on one page, and what the pages name exists.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

{
  for folder in core kernels parallel layers launcher configs tests; do
    if [ ! -d "$folder" ]; then continue; fi
    if [ ! -f "$folder/README.md" ]; then echo "$folder/README.md is missing"; fi
  done
  for page in ./*/README.md; do
    if [ "$(wc -l <"$page")" -gt 80 ]; then echo "$page is longer than a page (80 lines)"; fi
  done
  # shellcheck disable=SC2016
  # `folder/file` in backticks; names with <, * or { stand for several files.
  grep -noE '`(core|kernels|parallel|layers|launcher|configs|tests)/[A-Za-z0-9_./-]+`' README.md ./*/README.md |
    while IFS=: read -r page line name; do
      name=${name//\`/}
      if [ -e "$name" ] || compgen -G "$name.*" >/dev/null; then continue; fi
      echo "$page:$line: $name does not exist"
    done
} | expect_none "READMEs"
