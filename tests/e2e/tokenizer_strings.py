"""Strings that break tokenizers: scripts, marks, spaces of every kind, contractions, added tokens."""
import sys
import unicodedata

# Code points of Unicode 13: older than every table involved (PCRE2, ICU, and those of the package).
NEW_IN_14 = [(0x61D, 0x61D), (0x870, 0x88E), (0x890, 0x891), (0x898, 0x89F), (0x8B5, 0x8B5), (0x8C8, 0x8D2),
             (0xC3C, 0xC3C), (0xC5D, 0xC5D), (0xCDD, 0xCDD), (0x170D, 0x170D), (0x1715, 0x1715), (0x171F, 0x171F),
             (0x180F, 0x180F), (0x1AC1, 0x1ACE), (0x1B4C, 0x1B4C), (0x1B7D, 0x1B7E), (0x1DFA, 0x1DFA),
             (0x20C0, 0x20C0), (0x2C2F, 0x2C2F), (0x2C5F, 0x2C5F), (0x2E53, 0x2E5D), (0x9FFD, 0x9FFF),
             (0xA7C0, 0xA7C1), (0xA7D0, 0xA7D9), (0xA7F2, 0xA7F4), (0xFBC2, 0xFBC2), (0xFD40, 0xFD4F),
             (0xFDCF, 0xFDCF), (0xFDFE, 0xFDFF), (0x10000, 0x10FFFF)]
KNOWN = [chr(c) for c in range(0x10000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")
         and not any(a <= c <= b for a, b in NEW_IN_14)]
HIGH = [chr(c) for a, b in [(0x10330, 0x1034A), (0x10400, 0x1044F), (0x1D400, 0x1D454), (0x1D7CE, 0x1D7FF),
                            (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x20000, 0x20100), (0xE0100, 0xE0120),
                            (0x110B0, 0x110BA), (0x11100, 0x11134)] for c in range(a, b)]
SPACES = list(" \t\n\r\x0b\x0c\x85\xa0\u1680\u180e\u2000\u2003\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff")
WORDS = ["the", " the", " The", "'s", "'S", "'ll", "'LL", "'Re", "'\u017f", "'t", "don't", "I'VE", " 123", "4567",
         "  ", "    ", "\n\n", " \n ", "\r\n", "return", "tokenizer", "std::", "e\u0301", "A\u030a", "\u1100\u1161\u11a8",
         "\u0958", "\u212b", "cafe\u0301x", "caf\u00e9x", "<tool>", "<to", "<tool", " <l>", "<l> ", "  <r>  ", "word", "words",
         " word ", "sword", "<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "<|eot_id|>", "\u2581", "\u2581\u2581the",
         "<0x0A>", "<0x", "\u00bd", "\u0663", "\u2167", "_", "...", "!?", "(a)", "\x00", "\x7f", "\ufffd"]


def fuzzed(random, words=WORDS):
    """One string."""
    out = []
    style = random.random()
    for _ in range(random.choice([0, 1, 2, 3, 5, 8, 13, 30])):
        kind = random.random()
        if style < 0.15:
            out.append(random.choice(KNOWN))
        elif kind < 0.35:
            out.append(random.choice(words))
        elif kind < 0.55:
            out.append("".join(random.choice("abcdefghijklmnopqrstuvwxyzABCDEINTS'") for _ in range(random.randint(1, 9))))
        elif kind < 0.70:
            out.append(random.choice(SPACES) * random.choice([1, 1, 1, 2, 3, 7]))
        elif kind < 0.78:
            out.append(str(random.randint(0, 10 ** random.randint(1, 9))))
        elif kind < 0.86:
            out.append("".join(random.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(random.randint(1, 4))))
        elif kind < 0.97:
            out.append(random.choice(KNOWN) * random.choice([1, 1, 2]))
        else:
            out.append(random.choice(HIGH))
    if random.random() < 0.01:
        out = out * random.randint(5, 60)
    return "".join(out)


def every_character():
    """Every code point alone among letters, with an accent, and behind its neighbour."""
    return ["a%sb %s\u0301 x%s%s\u200d" % (c, c, d, c) for c, d in zip(KNOWN + HIGH, HIGH + KNOWN)]


if __name__ == "__main__":
    print(len(KNOWN), "code points", file=sys.stderr)
