"""Weft and the transformers package open each other's folders and compute the same logits.

python hf_logits.py WEFT [FAMILY ...]

For a random small model of each class: import (from several files), logits, export with the same bits, and, after twenty
training steps, export again: transformers opens what Weft wrote and gives Weft's logits. Exit code 77: no transformers here.
"""

import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_models  # noqa: E402

TOLERANCE = 1e-4  # of the largest logit; f32 on both sides


def weft(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"weft {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def weft_logits(program, checkpoint, tokens, folder):
    save_file({"tokens": tokens.int()}, f"{folder}/tokens.st")
    weft(program, "eval", "logits", "--checkpoint", checkpoint, "--tokens", f"{folder}/tokens.st", "--out",
         f"{folder}/logits.st")
    return load_file(f"{folder}/logits.st")["logits"]


def open_in_transformers(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager",
                                                              experts_implementation="eager")
    return model.eval()


def error(got, want):
    return ((got - want).abs().max() / want.abs().max()).item()


def tensors_of(path):
    out = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".safetensors"):
            out.update(load_file(os.path.join(path, name)))
    return {published_name(n): t for n, t in out.items()}


def published_name(name):
    """transformers writes the dense layers of kimi_linear as block_sparse_moe, the published folder says mlp."""
    for part in ("gate_proj", "up_proj", "down_proj"):
        name = name.replace(f".block_sparse_moe.{part}", f".mlp.{part}")
    return name


def compare_tensors(before, after):
    """Names that only one side has, and those whose bits differ."""
    a, b = tensors_of(before), tensors_of(after)
    different = [n for n in a if n in b and not torch.equal(a[n], b[n])]
    return sorted(set(a) ^ set(b)), different


def write_dataset(prefix, vocab):
    """Random documents in Megatron's .bin/.idx."""
    generator = torch.Generator().manual_seed(3)
    lengths = [97] * 12
    tokens = torch.randint(0, vocab, (sum(lengths),), generator=generator).tolist()
    with open(prefix + ".bin", "wb") as f:
        f.write(struct.pack(f"<{len(tokens)}H", *tokens))
    offsets = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
        f.write(struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(lengths)}q", *offsets))
        f.write(struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))


# Tables that the class stores although they follow from its config.
DERIVED = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")


def check(program, family, folder):
    model = hf_models.make_model(family, seed=11)
    hf_models.save(model, f"{folder}/hf", shard="20KB")
    tokens = hf_models.tokens_for(model, 2, 70)
    want = hf_models.logits_of(model, tokens)
    weft(program, "convert", "import", f"{folder}/hf", f"{folder}/ckpt")
    first = error(weft_logits(program, f"{folder}/ckpt", tokens, folder), want)

    weft(program, "convert", "export", f"{folder}/ckpt", f"{folder}/out")
    apart, different = compare_tensors(f"{folder}/hf", f"{folder}/out")
    apart = [n for n in apart if not n.endswith(DERIVED)]
    back = error(hf_models.logits_of(open_in_transformers(f"{folder}/out"), tokens), want)

    write_dataset(f"{folder}/data", model.config.vocab_size)
    weft(program, "train", f"{folder}/ckpt/config.toml", f'data.train=["{folder}/data"]', "train.steps=20",
         "train.sequence=32", "train.global_batch=2", "train.micro_batch=1", "train.precision=f32", "optimizer.lr=1e-3",
         "optimizer.warmup=2", "run.checkpoint_every=0", f"run.dir={folder}/ckpt/run")
    weft(program, "convert", "export", f"{folder}/ckpt/run", f"{folder}/trained")
    ours = weft_logits(program, f"{folder}/ckpt/run", tokens, folder)
    trained = error(hf_models.logits_of(open_in_transformers(f"{folder}/trained"), tokens), ours)
    moved = error(ours, want)
    good = max(first, back, trained) < TOLERANCE and not apart and not different and moved > TOLERANCE
    print(f"{'pass' if good else 'FAIL'} {family:18} import {first:.1e}  export {back:.1e}  trained {trained:.1e}  "
          f"moved {moved:.1e} {apart or ''} {different or ''}", flush=True)
    return good


def main():
    program, names = sys.argv[1], sys.argv[2:] or list(hf_models.FAMILIES)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    good = 0
    for family in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                good += check(program, family, folder)
            except Exception as problem:  # the others are still worth a line
                print(f"FAIL {family}: {problem}")
    print(f"{good} passed, {len(names) - good} failed")
    return 0 if good == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
