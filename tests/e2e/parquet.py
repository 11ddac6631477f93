"""Weft's reader of Parquet beside `datasets` and `tokenizers`: the same ids, byte for byte, for files that pyarrow writes.

    python3 tests/e2e/parquet.py build/weft
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy
import pyarrow.parquet
import tokenizers

import parquet_files
import tokenizer_families

try:
    import datasets
    datasets.disable_progress_bars()
except ImportError:
    datasets = None


def build(program, tokenizer, out, *inputs):
    run = subprocess.run([program, "data", "build", "--force", "--out", out, "--tokenizer", tokenizer, *inputs],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"weft data build {' '.join(inputs)} ended with {run.returncode}: {run.stderr}")
    return open(out + ".bin", "rb").read()


def documents(path, folder):
    """What `datasets` reads (pyarrow where it is not here), without what has no text."""
    if datasets is None:
        return parquet_files.flat(pyarrow.parquet.read_table(path, columns=["text"])["text"].to_pylist())
    rows = datasets.Dataset.from_parquet(path, columns=["text"], cache_dir=folder + "/cache", keep_in_memory=True)["text"]
    return parquet_files.flat([r.decode() if isinstance(r, bytes) else r for r in rows])


def main():
    program = sys.argv[1]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "tokenizer.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(tokenizer_families.gpt2(tokenizer_families.corpus(), 700), out, ensure_ascii=False)
        package = tokenizers.Tokenizer.from_file(file)
        end = package.token_to_id("<|endoftext|>")

        def ids(texts):
            return numpy.array([i for e in package.encode_batch(texts) for i in [*e.ids, end]], numpy.uint16).tobytes()

        files = []
        for number, (name, how) in enumerate(parquet_files.every_way()):
            path = os.path.join(folder, name + ".parquet")
            texts = parquet_files.write(path, rows=31 + 61 * (number % 5), seed=number, write_page_checksum=number % 2 == 0,
                                        dictionary_pagesize_limit=200 if number % 3 == 0 else 1 << 20, **how)
            files.append((path, texts if "binary" in name else documents(path, folder)))
        # Defaults of pyarrow, with pages of a megabyte.
        path = os.path.join(folder, "large.parquet")
        parquet_files.write(path, "nullable", "ZSTD", "DICTIONARY", "1.0", 60000, seed=5, row_group_size=9000,
                            data_page_size=1 << 20, write_batch_size=1024)
        files.append((path, documents(path, folder)))

        def same(files, *options):
            built = build(program, file, os.path.join(folder, "x"), *options, *[path for path, _ in files])
            return built == ids([t for _, texts in files for t in texts])

        for threads in ("1", "2", "5"):
            if not same(files, "--threads", threads):
                wrong += 1
                bad = [os.path.basename(one[0]) for one in files if not same([one])]
                print(f"{threads} threads: other ids than datasets and tokenizers give in {bad}")
        print(f"{len(files)} files beside {'datasets' if datasets else 'pyarrow'}, {wrong} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
