# Third-party headers appear only in the folders that may use them, and <format>-like headers that Debian's
# compiler lacks nowhere. Tests may include all.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

# header pattern : folders that may include it ("-" for none)
rules='
^(mpi|nccl|nccl_device)[.]h$ : parallel
^(hdf5|H5[A-Za-z]*)[.]h$ : core
^(pcre2[.]h|unicode/|zlib[.]h|zstd|snappy) : core
^toml([+][+]|plusplus)? : core
^spdlog/ : core
^nlohmann/ : core launcher
^CLI/ : launcher
(cblas|openblas|lapacke|mkl) : kernels
^(cublas|cudnn|cutlass|transformer_engine) : kernels
^cuda_runtime : core kernels parallel
^(format|print|mdspan|generator|flat_map|flat_set)$ : -
'

source_files | grep -v '^tests/' |
  matching_lines '^[[:space:]]*#[[:space:]]*include[[:space:]]+[<"]' | awk -F: -v rules="$rules" '
  BEGIN {
    count = split(rules, lines, "\n")
    for (i = 1; i <= count; ++i)
      if (split(lines[i], halves, " : ") == 2) { header[++n] = halves[1]; where[n] = " " halves[2] " " }
  }
  {
    split($1, path, "/")
    match($0, /[<"][^>"]*/); target = substr($0, RSTART + 1, RLENGTH - 1)
    for (i = 1; i <= n; ++i)
      if (target ~ header[i] && index(where[i], " " path[1] " ") == 0)
        print $0 "   <- allowed in:" where[i]
  }' | expect_none "Third-party headers outside their folder"
