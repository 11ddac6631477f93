# Nothing in the project depends on, or tells of, the machine it was written on.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

project_files | grep -vE '\.(safetensors|h5|bin|idx|png)$' |
  matching_lines '/(work|farm)/|(^|[^A-Za-z0-9_.-])/(home/[a-z]+|root)/' |
  expect_none "Paths of one machine"
