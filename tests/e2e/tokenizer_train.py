"""A vocabulary that Weft trained (gpt2 pattern) against the package's own trainer on the same files.

    python3 tests/e2e/tokenizer_train.py tokenizer.json FILES...
"""
import json
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ours = json.load(open(sys.argv[1], encoding="utf-8"))["model"]
texts = [open(f, encoding="utf-8", newline="").read() for f in sys.argv[2:]]
t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
t.train_from_iterator(texts, trainers.BpeTrainer(
    vocab_size=len(ours["vocab"]), min_frequency=2, special_tokens=["<|endoftext|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
theirs = json.loads(t.to_str())["model"]
merges = [m if isinstance(m, str) else " ".join(m) for m in theirs["merges"]]
same = ours["vocab"] == theirs["vocab"] and ours["merges"] == merges
print(f"trained: {len(ours['vocab'])} tokens, {'the same as' if same else 'NOT those of'} the package's trainer")
sys.exit(0 if same else 1)
