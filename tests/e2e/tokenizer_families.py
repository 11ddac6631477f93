"""Small vocabularies of every family that Weft reads, made by the `tokenizers` package."""
import atexit
import base64
import glob
import io
import json
import os
import shutil
import tempfile

import sentencepiece
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


def fields(message):
    """Numbers and bytes of a protobuf message, by field."""
    at, found = 0, {}

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = message[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        key = varint()
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        if key & 7:
            found.setdefault(key >> 3, []).append(message[at:at + size])
            at += size
        else:
            found.setdefault(key >> 3, []).append(size)
    return found


# Replacements of one and of several characters, by nothing, and of a string whose beginning has one too.
RULES = ["41 30A\tC5", "65 301\tE9", "2460 301\t32", "FF21\t41", "2460\t31", "3000\t20", "A0\t20", "A\t20", "9\t20", "200B\t",
         "1\t", "2026\t2E 2E 2E", "AC00 AE\t41", "DF\t73 73", "D A\t20", "FB01\t66 69"]
charsmaps = {}


def rules_file():
    """RULES as a file for SentencePiece."""
    path = os.path.join(tempfile.mkdtemp(), "rules.tsv")
    atexit.register(shutil.rmtree, os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n".join(RULES) + "\n")
    return path


def charsmap(rule):
    """SentencePiece's map of a rule's name, or of RULES, in base64."""
    if rule not in charsmaps:
        rules = {"normalization_rule_tsv": rules_file()} if rule == "RULES" else {"normalization_rule_name": rule}
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a few words", "of a text"] * 20), vocab_size=20, hard_vocab_limit=False,
                                                 model_writer=model, minloglevel=2, **rules)
        charsmaps[rule] = base64.b64encode(fields(fields(model.getvalue())[3][0])[2][0]).decode()
    return charsmaps[rule]


def unigram(texts, size, pre, normalizer=None, decoder=None, fallback=False):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="always")
    special = ["<pad>", "</s>", "<unk>"] + (["<0x%02X>" % i for i in range(256)] if fallback else [])
    t.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=size + len(special), special_tokens=special, unk_token="<unk>",
                                                         show_progress=False))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    j["normalizer"], j["pre_tokenizer"], j["decoder"] = normalizer, pre, decoder or {
        "type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
    j["model"]["byte_fallback"] = fallback
    j["post_processor"] = {"type": "TemplateProcessing",
                           "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                           "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}
    return j


ALWAYS = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
STORED = "RULES"  # the map in files that are stored; whole ones have 300 kB


def t5(texts, size, rule="nmt_nfkc"):
    """As XLM-R too."""
    pre = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, ALWAYS]}
    return unigram(texts, size, pre, {"type": "Precompiled", "precompiled_charsmap": charsmap(rule)})


def t5_later(texts, size, rule="nmt_nfkc"):
    norm = {"type": "Sequence", "normalizers": [
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Precompiled", "precompiled_charsmap": charsmap(rule)},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": MARK}]}
    return unigram(texts, size, ALWAYS, norm)


def albert(texts, size, rule="nmt_nfkc_cf"):
    norm = {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "``"}, "content": "\""},
        {"type": "Replace", "pattern": {"String": "''"}, "content": "\""},
        {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
        {"type": "Precompiled", "precompiled_charsmap": charsmap(rule)},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    return unigram(texts, size, ALWAYS, norm)


def unigram_bytes(texts, size):
    """Nothing cuts the text, and bytes to fall back on."""
    norm = {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "Prepend", "prepend": MARK},
                                                {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
    return unigram(texts, size, None, norm, FALLBACK, fallback=True)


def gemma(texts, size):
    norm = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    pre = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    decoder = dict(FALLBACK, decoders=FALLBACK["decoders"][:3])
    return metaspace(texts, size, pre, decoder, norm)


def word_piece(texts, size, normalizer, pre, post, decoder):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, decoder
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size + 150, show_progress=False, limit_alphabet=150, special_tokens=[
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.post_processor = post
    return json.loads(t.to_str())


def bert(texts, size):
    post = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                         special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return word_piece(texts, size, normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), post, decoders.WordPiece())


def bert_cased(texts, size):
    return word_piece(texts, size, normalizers.BertNormalizer(handle_chinese_chars=False, lowercase=False),
                      pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_next")]),
                      processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)), decoders.WordPiece(cleanup=False))


def stored(make):
    """A family as it is stored: of small files."""
    small = {t5, t5_later, albert}
    return (lambda texts, size: make(texts, size, STORED)) if make in small else make


FAMILIES = {f.__name__: f for f in (gpt2, roberta_like, llama3, qwen2, mistral_legacy, mistral, metaspace_split, t5, t5_later,
                                    albert, unigram_bytes, gemma, bert, bert_cased)}
