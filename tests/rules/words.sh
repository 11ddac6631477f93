# Comments are sentences about code. They do not open with words that only continue an earlier thought ("What a rank
# has to send."), and no person acts in them. One opener is looked at per comment: its first line, or behind code.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

# Folders whose comments are still to be rewritten.
pending='^(core/data|core/files|kernels/(cpu|cuda|te)|layers/(context|memory|mixers|recurrence)|launcher/(train|checkpoint|data)|parallel)/|^layers/[^/]*$'

{ source_files | { grep -vE "$pending" || true; }; source_files | grep -E '^(layers/(context|recurrence)|parallel/sequence)/'; } | sort -u | xargs -r -d '\n' awk '
  FNR == 1 { inside = 0 }
  {
    text = ""; behind = 0
    if (match($0, /^[ \t]*\/\/ ?/)) {
      all = substr($0, RLENGTH + 1)
      if (!inside) text = all
      inside = 1
    } else {
      inside = 0
      all = ""
      if (match($0, /[;{},)(>] +\/\/ /)) { all = text = substr($0, RSTART + RLENGTH); behind = 1 }
    }
    if (text ~ /^(What|Of|Those|The same|And|Nobody|Somebody|Everybody|Whoever|Who)[ .,:;]/ ||
        (behind && text ~ /^(what|those|the same|and|who|whoever) /))
      print FILENAME ":" FNR ": opens with \"" substr(text, 1, 40) "\""
    else if (match(tolower(all), /(^|[^a-z])(nobody|somebody|everybody|whoever|anew|gets on|find out|finds out|found out)([^a-z]|$)/))
      print FILENAME ":" FNR ": says \"" substr(all, RSTART, RLENGTH) "\""
  }' | expect_none "Comments in other than plain words"
