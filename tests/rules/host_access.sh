# Bytes of tensors are touched in CPU kernels, in host communicators, in tests, and in the files listed here, which
# move numbers into the program or out of it. Everything else works on any device because it touches none:
# core/host_access.h is included nowhere else, and views are not cast to typed pointers.
# shellcheck source=tests/rules/files
. "$(dirname "$0")/files"

# Datasets and batches, initial values, checkpoints, files of weights, import and export, sampling of tokens, routing
# traces, golden cases, benchmarks.
staging='
core/host_access.h
core/data/sampler.cc
core/initial_values.cc
core/files/safetensors.cc
parallel/checkpoint/checkpoint_reader.cc
parallel/checkpoint/checkpoint_saver.cc
parallel/checkpoint/checkpoint_write.cc
launcher/bench/*
launcher/checkpoint/upcycle.cc
launcher/eval/eval_logits.cc
launcher/eval/scorer.cc
launcher/generate/generator.cc
launcher/hf/export.cc
launcher/hf/folder.cc
launcher/train/micro_batch.cc
launcher/train/routing_trace.cc
launcher/verify/*
'
# Loops that are to become kernels.
pending='
kernels/cublaslt/*
kernels/te/*
'
set -f  # patterns stay patterns
allowed() { # FILE
  local pattern
  for pattern in $staging $pending 'parallel/comm/*_comm.cc' 'parallel/comm/thread_group.cc' 'parallel/comm/reduction.*' \
    kernels/dispatch.h 'kernels/*/cpu/*' 'kernels/cpu/*' 'kernels/tile/*' 'tests/*'; do
    # shellcheck disable=SC2053 # patterns
    if [[ $1 == $pattern ]]; then return 0; fi
  done
  return 1
}

source_files |
  matching_lines '#include "core/host_access\.h"|(static|reinterpret)_cast<[^>]*(float|int|bf16)[^>]*\*>\([A-Za-z_.()]*(\.|->)data\)' |
  while IFS= read -r line; do allowed "${line%%:*}" || printf '%s\n' "$line"; done |
  expect_none "Host access to the bytes of tensors"
