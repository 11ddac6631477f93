"""Writes tests/golden/tokenizers: small vocabularies of every family and what the `tokenizers` package makes of
some strings with them. tests/core/hf_tokenizer_test.cc reads them, where there is no Python.

    python3 tests/e2e/tokenizer_golden.py
"""
import json
import os
import random

import tokenizers

import tokenizer_families
import tokenizer_strings

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "tokenizers")
os.makedirs(folder, exist_ok=True)
random.seed(11)
for name, make in tokenizer_families.FAMILIES.items():
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(tokenizer_families.stored(make)([tokenizer_families.WORLD] * 5 + tokenizer_families.corpus()[:3], 420), out, separators=(",", ":"))
        out.write("\n")
    package = tokenizers.Tokenizer.from_file(path)
    cases = []
    for text in sorted({tokenizer_strings.fuzzed(random) for _ in range(70)}, key=len)[:60]:
        ids = package.encode(text, add_special_tokens=False).ids
        odd = [random.randrange(package.get_vocab_size()) for _ in range(random.randint(0, 9))]
        cases.append({"text": text, "ids": ids, "special": package.encode(text).ids, "decoded": package.decode(ids),
                      "odd": odd, "odd_text": package.decode(odd)})
    with open(os.path.join(folder, name + ".cases.json"), "w", encoding="utf-8") as out:
        json.dump(cases, out, separators=(",", ":"))
        out.write("\n")
