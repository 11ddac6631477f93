# A file includes its own folder and folders to the left of it, tests may include all:
#   core < kernels < parallel < layers < launcher
# Inside each of them subfolders have an order too ("." stands for the files of the folder itself; cpu, isa and cuda
# belong to the subfolder they are in). Project includes are written from the top folder.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

source_files | matching_lines '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' | awk -F: '
  function subfolder(path, count, parts) {
    count = split(path, parts, "/")
    return parts[1] "/" (count > 2 ? parts[2] : ".")
  }
  function list(folder, names, count, parts, i) {
    order[folder] = ++folders
    count = split(names, parts, " ")
    for (i = 1; i <= count; ++i) order[folder "/" parts[i]] = i
    rule[folder] = names
    gsub(/ /, " < ", rule[folder])
  }
  BEGIN {
    list("core", "base threads memory . files report config data gpu")
     list("kernels", ". cpu cuda tile programs matrix rows states gates sequence routing scan attention model cublaslt te")
    list("parallel", "watchdog layout comm sequence checkpoint .")
    list("layers", "context recurrence basic moe memory mixers .")
    list("launcher", "app plot data checkpoint generate eval train hf bench verify")
    order["tests"] = ++folders
  }
  {
    split($1, path, "/"); from = path[1]
    match($0, /"[^"]*"/); target = substr($0, RSTART + 1, RLENGTH - 2)
    split(target, parts, "/"); to = parts[1]
    if (!(to in order)) print $0 "   <- not written from the top folder"
    else if (from in order && order[to] > order[from]) print $0 "   <- " from " must not know " to
    else if (from == to && from != "tests") {
      a = subfolder($1); b = subfolder(target)
      if (!(a in order)) print $0 "   <- " a " has no place in the order " rule[from]
      else if (!(b in order)) print $0 "   <- " b " has no place in the order " rule[from]
      else if (order[b] > order[a]) print $0 "   <- in " from ": " rule[from]
    }
  }' | expect_none "Includes that break the order of folders"
