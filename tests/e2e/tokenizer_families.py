"""Small vocabularies of every family that Weft reads, made by the `tokenizers` package."""
import glob
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
MARK = "\u2581"
WORLD = ("Gr\u00f6\u00dfe na\u00efve caf\u00e9 \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \u4e2d\u6587 \ud55c\uad6d\uc5b4 "
         "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u05e2\u05d1\u05e8\u05d9\u05ea \u0627\u0644\u0639\u0631\u0628\u064a\u0629 "
         "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \U0001f642 e\u0301 \u00bd \u00b2 \u2167")


def corpus():
    """The project's own pages and sources, and a little of the world's scripts."""
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    files = sorted(glob.glob(top + "/*/README.md") + glob.glob(top + "/core/*.cc") + glob.glob(top + "/launcher/*.cc"))
    return [open(f, encoding="utf-8").read() for f in files] + [WORLD] * 20


def byte_level(texts, size, pre, special, norm=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if norm:
        t.normalizer = norm
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return t


def split_then_bytes(pattern, *first):
    return pre_tokenizers.Sequence([*first, pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def with_added(t):
    """One added token of every kind."""
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("caf\u00e9x", normalized=True),
                  AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True, normalized=False),
                  AddedToken("word", single_word=True, normalized=False), AddedToken("<to", normalized=False)])
    return json.loads(t.to_str())


def gpt2(texts, size):
    t = byte_level(texts, size, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return json.loads(t.to_str())


def roberta_like(texts, size):
    """A space in front of everything, digits one by one."""
    t = byte_level(texts, size, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                         pre_tokenizers.ByteLevel(add_prefix_space=True)]), ["</s>"])
    return with_added(t)


def llama3(texts, size):
    t = byte_level(texts, size, split_then_bytes(LLAMA3), ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B:1", special_tokens=[("<|begin_of_text|>", 0)])])
    j = json.loads(t.to_str())
    j["model"]["ignore_merges"] = True
    return j


def qwen2(texts, size):
    t = byte_level(texts, size, split_then_bytes(QWEN2), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                   normalizers.NFC())
    return with_added(t)


def metaspace(texts, size, pre, decoder, normalizer=None):
    """Characters with bytes to fall back on, as in Mistral."""
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="always")
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size + 100, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)],
        limit_alphabet=90, show_progress=False))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] in ("<unk>", "<s>", "</s>")]
    j["normalizer"], j["pre_tokenizer"], j["decoder"] = normalizer, pre, decoder
    piece = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    text = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    j["post_processor"] = {"type": "TemplateProcessing", "single": [piece("<s>"), text("A", 0)],
                           "pair": [piece("<s>"), text("A", 0), text("B", 1)],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return j


FALLBACK = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def mistral_legacy(texts, size):
    norm = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK},
                                                {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
    return metaspace(texts, size, None, FALLBACK, norm)


def mistral(texts, size):
    pre = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}
    return metaspace(texts, size, pre, FALLBACK)


def metaspace_split(texts, size):
    pre = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
    return metaspace(texts, size, pre, pre)


FAMILIES = {f.__name__: f for f in (gpt2, roberta_like, llama3, qwen2, mistral_legacy, mistral, metaspace_split)}
