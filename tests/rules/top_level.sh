# The top level of the project is fixed; new things find their place in a folder.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

{ git ls-files 2>/dev/null || project_files; } | cut -d/ -f1 | sort -u |
  { grep -vxE 'CMakeLists\.txt|core|kernels|parallel|layers|launcher|configs|tests|README\.md|\..*' || true; } |
  expect_none "Top-level entries beyond the fixed ones"
