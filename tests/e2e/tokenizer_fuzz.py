"""Weft's tokenizers beside the `tokenizers` package: the same ids and texts for fuzzed strings.

    python3 tests/e2e/tokenizer_fuzz.py build/weft                    # 100,000 strings for each family: minutes
    python3 tests/e2e/tokenizer_fuzz.py build/weft --strings 500 --family qwen2 --tokenizer path/to/tokenizer.json

Ends with 77 where the package is missing.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import tokenizers
except ImportError:
    print("the Python package `tokenizers` is not here")
    sys.exit(77)
import tokenizer_families
import tokenizer_strings


def ask_weft(program, file, lines, *options):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = subprocess.run([program, "data", "encode", "--tokenizer", file, *options], input=text, text=True,
                         encoding="utf-8", capture_output=True)
    if run.returncode != 0:
        sys.exit(f"weft data encode ended with {run.returncode}: {run.stderr}")
    return [json.loads(line) for line in run.stdout.split("\n") if line]


def differences(what, given, ours, theirs):
    bad = [i for i in range(len(given)) if ours[i] != theirs[i]]
    for i in bad[:5]:
        print(f"  {what} of {given[i]!r}\n    weft       {ours[i]!r}\n    tokenizers {theirs[i]!r}")
    return len(bad)


def compare(program, name, file, strings):
    package = tokenizers.Tokenizer.from_file(file)
    theirs = [e.ids for e in package.encode_batch(strings, add_special_tokens=False)]
    wrong = differences("ids", strings, ask_weft(program, file, strings), theirs)
    some = strings[: len(strings) // 10 + 1]
    whole = [e.ids for e in package.encode_batch(some)]
    wrong += differences("ids with the template", some, ask_weft(program, file, some, "--special"), whole)
    # Texts of the ids, and of ids that no text has, whose bytes make no characters.
    size = package.get_vocab_size()
    odd = [[random.randrange(size) for _ in range(random.randint(0, 9))] for _ in some]
    for ids in (theirs[: len(some)], odd):
        wrong += differences("text", ids, ask_weft(program, file, ids, "--decode"), package.decode_batch(ids))
    print(f"{name}: {len(strings)} strings, {wrong} differences")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--strings", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1200, help="of the vocabularies")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", action="append", choices=list(tokenizer_families.FAMILIES))
    parser.add_argument("--tokenizer", action="append", default=[], help="compare on this file too")
    args = parser.parse_args()
    random.seed(args.seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name in args.family or tokenizer_families.FAMILIES:
            files.append((name, os.path.join(folder, name + ".json")))
            with open(files[-1][1], "w", encoding="utf-8") as out:
                json.dump(tokenizer_families.FAMILIES[name](tokenizer_families.corpus(), args.size), out, ensure_ascii=False)
        for name, file in files + [(f, f) for f in args.tokenizer]:
            strings = [tokenizer_strings.fuzzed(random) for _ in range(args.strings)]
            if name in ("t5", "albert", "bert", "bert_cased"):  # whose normalizers have tables of characters
                strings += tokenizer_strings.every_character()
            wrong += compare(args.weft, name, file, strings)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
