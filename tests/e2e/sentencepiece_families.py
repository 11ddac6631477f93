"""Small models of every kind of SentencePiece that Weft reads, trained by that package."""
import io
import os

import sentencepiece

import tokenizer_families

WORDS = ["the quick brown fox", "a  tokenizer's   text", "na\u00efve caf\u00e9", "12 345 6789", "def f(x):\n\treturn x", "std::vector<int>",
         "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8", "\uff21\uff22\uff23 \u2460", "don't I'VE we'll", " spaces  in front", "words word sword"]


def train(texts, size, **options):
    lines = [line for text in texts for line in text.split("\n") if line.strip()] + WORDS * 5
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), vocab_size=size, hard_vocab_limit=False, model_writer=model, minloglevel=2,
        max_sentence_length=100000, num_threads=1, **options)
    return model.getvalue()


def rules(rule):
    """Options for a rule's name, or for the small table that stored files have."""
    if rule != "RULES":
        return {"normalization_rule_name": rule}
    return {"normalization_rule_tsv": tokenizer_families.rules_file()}


def unigram(texts, size, rule="nmt_nfkc"):
    return train(texts, size, **rules(rule))


def unigram_symbols(texts, size, rule="nfkc_cf"):
    return train(texts, size, byte_fallback=True, user_defined_symbols=["<tool>", "<to", "word", "\u2581\u2581"],
                 control_symbols=["<ctl>"], remove_extra_whitespaces=False, character_coverage=0.98, **rules(rule))


def unigram_suffix(texts, size, rule="identity"):
    return train(texts, size, treat_whitespace_as_suffix=True, **rules(rule))


def bpe(texts, size, rule="nmt_nfkc"):
    return train(texts, size, model_type="bpe", **rules(rule))


def llama2(texts, size, rule="identity"):
    return train(texts, size + 256, model_type="bpe", byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True,
                 remove_extra_whitespaces=False, character_coverage=0.99, **rules(rule))


def gemma(texts, size, rule="identity"):
    return train(texts, size + 256, model_type="bpe", byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True,
                 remove_extra_whitespaces=False, add_dummy_prefix=False, character_coverage=0.99, pad_id=0, eos_id=1, bos_id=2, unk_id=3,
                 user_defined_symbols=["<tool>", "<to", "\n\n", "\u2581\u2581", "word"], **rules(rule))


def bpe_across(texts, size, rule="nmt_nfkc"):
    return train(texts, size, model_type="bpe", split_by_whitespace=False, **rules(rule))


FAMILIES = {f.__name__: f for f in (unigram, unigram_symbols, unigram_suffix, bpe, llama2, gemma, bpe_across)}
STORED_RULE = {"unigram": "RULES", "unigram_symbols": "RULES", "bpe": "RULES", "bpe_across": "RULES"}
