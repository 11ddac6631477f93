# A file includes its own folder and folders to the left of it: core < kernels < parallel < layers < launcher.
# Tests may include all. Project includes are written from the top folder.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

source_files | matching_lines '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' | awk -F: '
  BEGIN {
    split("core kernels parallel layers launcher tests", names, " ")
    for (i in names) order[names[i]] = i
  }
  {
    split($1, path, "/"); from = path[1]
    match($0, /"[^"]*"/); target = substr($0, RSTART + 1, RLENGTH - 2)
    split(target, parts, "/"); to = parts[1]
    if (!(to in order)) print $0 "   <- not written from the top folder"
    else if (from in order && order[to] > order[from]) print $0 "   <- " from " must not know " to
  }' | expect_none "Includes that break the order core < kernels < parallel < layers < launcher"
