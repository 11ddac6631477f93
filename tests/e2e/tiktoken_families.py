"""Small rank files of tiktoken, made from vocabularies that the `tokenizers` package trains."""
import base64
import json
import os

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from tokenizer_families import LLAMA3, QWEN2

PATTERNS = {
    "gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    "llama3": LLAMA3,
    "qwen2": QWEN2,
    "o200k": "|".join([
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"]),
}
OWN = r"\p{Lu}?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]"  # drops most white space
FAMILIES = [*PATTERNS, OWN]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|eot_id|>", "<tool>", "<to"]


def write(folder, pattern, texts, size):
    """FOLDER/NAME.tiktoken and tokenizer_config.json; the ids of special tokens leave a gap."""
    os.makedirs(folder, exist_ok=True)
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS.get(pattern, pattern)), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in kept]
    byte = {chr(b): b for b in kept} | {chr(256 + i): b for i, b in enumerate(rest)}
    vocab = sorted(t.get_vocab().items(), key=lambda item: item[1])
    path = os.path.join(folder, "vocabulary.tiktoken")
    with open(path, "w", encoding="utf-8") as out:
        for token, rank in vocab:
            out.write(base64.b64encode(bytes(byte[c] for c in token)).decode() + f" {rank}\n")
    added = {str(len(vocab) + 2 * i + 3): {"content": s, "special": True} for i, s in enumerate(SPECIAL)}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as out:
        json.dump({"added_tokens_decoder": added}, out)
        out.write("\n")
    return path


def read(path):
    """Ranks and special tokens."""
    lines = [line.split() for line in open(path, encoding="utf-8")]
    config = json.load(open(os.path.join(os.path.dirname(path), "tokenizer_config.json"), encoding="utf-8"))
    return ({base64.b64decode(token): int(rank) for token, rank in lines},
            {entry["content"]: int(i) for i, entry in config["added_tokens_decoder"].items()})
