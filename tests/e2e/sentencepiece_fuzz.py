"""Weft beside the `sentencepiece` and `tiktoken` packages: the same ids and texts for fuzzed strings.

    python3 tests/e2e/sentencepiece_fuzz.py build/weft [--strings 10000] [--model FILE.model]
    python3 tests/e2e/sentencepiece_fuzz.py --store     # writes tests/golden/sentencepiece and tests/golden/tiktoken
"""
import argparse
import json
import os
import random
import sys
import tempfile

import sentencepiece
import tiktoken

import sentencepiece_families
import tiktoken_families
import tokenizer_families
import tokenizer_strings
from tokenizer_fuzz import ask_weft, differences


class SentencePiece:
    def __init__(self, path):
        self.package = sentencepiece.SentencePieceProcessor(model_file=path)
        self.size, self.options = self.package.vocab_size(), []
        self.ids, self.text = self.package.encode, self.package.decode


class Tiktoken:
    def __init__(self, path, pattern):
        ranks, special = tiktoken_families.read(path)
        self.package = tiktoken.Encoding("x", pat_str=tiktoken_families.PATTERNS.get(pattern, pattern), mergeable_ranks=ranks,
                                         special_tokens=special)
        self.size, self.options = len(ranks), ["--pattern", pattern]
        self.ids = lambda text: self.package.encode(text, allowed_special="all")
        silent = set(special.values())  # special tokens have no text in Weft
        self.text = lambda ids: self.package.decode([i for i in ids if i not in silent])


def compare(program, name, path, package, strings):
    theirs = [package.ids(text) for text in strings]
    wrong = differences("ids", strings, ask_weft(program, path, strings, *package.options), theirs)
    odd = [[random.randrange(package.size) for _ in range(random.randint(0, 9))] for _ in strings[::10]]
    if isinstance(package, Tiktoken):
        odd = []  # whose bytes need not be characters; what stands for them is each program's own
    for ids in (theirs[::10], odd):
        wrong += differences("text", ids, ask_weft(program, path, ids, "--decode", *package.options), [package.text(i) for i in ids])
    print(f"{name}: {len(strings)} strings, {wrong} differences")
    return wrong


def made(folder, size, texts, small):
    """(name, path, package) of every family."""
    for name, make in sentencepiece_families.FAMILIES.items():
        rule = sentencepiece_families.STORED_RULE.get(name) if small else None
        path = os.path.join(folder, "sentencepiece", name + ".model")
        with open(path, "wb") as out:
            out.write(make(texts, size, rule) if rule else make(texts, size))
        yield name, path, SentencePiece(path)
    for pattern in tiktoken_families.FAMILIES:
        name = pattern if pattern in tiktoken_families.PATTERNS else "own"
        path = tiktoken_families.write(os.path.join(folder, "tiktoken", name), pattern, texts, size)
        yield "tiktoken " + name, path, Tiktoken(path, pattern)


def store():
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
    random.seed(12)
    for folder in ("sentencepiece", "tiktoken"):
        os.makedirs(os.path.join(golden, folder), exist_ok=True)
    texts = [tokenizer_families.WORLD] * 5 + tokenizer_families.corpus()[:3]
    for _, path, package in made(golden, 500, texts, small=True):
        cases = []
        for text in sorted({tokenizer_strings.fuzzed(random) for _ in range(50)}, key=len)[:40]:
            ids = package.ids(text)
            cases.append({"text": text, "ids": ids, "decoded": package.text(ids)})
        with open(os.path.splitext(path)[0] + ".cases.json", "w", encoding="utf-8") as out:
            json.dump({"options": package.options, "cases": cases}, out, separators=(",", ":"))
            out.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", nargs="?")
    parser.add_argument("--strings", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1200, help="of the vocabularies")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", action="append", default=[], help="compare on this SentencePiece file too")
    parser.add_argument("--store", action="store_true")
    args = parser.parse_args()
    if args.store:
        return store()
    random.seed(args.seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for part in ("sentencepiece", "tiktoken"):
            os.makedirs(os.path.join(folder, part))
        families = list(made(folder, args.size, tokenizer_families.corpus(), small=False))
        for name, path, package in families + [(m, m, SentencePiece(m)) for m in args.model]:
            wrong += compare(args.weft, name, path, package, [tokenizer_strings.fuzzed(random) for _ in range(args.strings)])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
