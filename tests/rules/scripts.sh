# The entry points can be started, and every script is at least well-formed.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

scripts=(.ci/run launcher/quickstart launcher/run launcher/setup tests/run tests/rules/at_instruction_set
  tests/rules/files tests/rules/*.sh tests/support/node_shell tests/support/two_nodes
  tests/support/vgpu/run tests/support/vgpu/bench tests/e2e/kill_and_resume
  tests/e2e/make_python tests/e2e/python tests/e2e/tokenizers tests/e2e/megatron tests/fuzz/run
  tests/golden/bits/record tests/bench/fault_times tests/bench/overlap tests/bench/save_stall)
{
  for script in .ci/run launcher/quickstart launcher/run tests/run tests/e2e/make_python tests/support/{node_shell,two_nodes,vgpu/run,vgpu/bench}; do
    if [ ! -x "$script" ]; then echo "$script is not executable"; fi
  done
  for script in "${scripts[@]}"; do bash -n "$script" 2>&1 || true; done
  if [ "$(grep -cvE '^(#|$)' .ci/run)" -ne 1 ] || ! grep -q 'tests/run' .ci/run; then
    echo ".ci/run must call tests/run and nothing else"
  fi
  if command -v shellcheck >/dev/null; then
    shellcheck -x -s bash -S warning -f gcc "${scripts[@]}" || true
  fi
} | expect_none "Scripts"
