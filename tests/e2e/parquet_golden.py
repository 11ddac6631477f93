"""Writes tests/golden/parquet: small files in every encoding, texts.json with their documents and refused.json with what is
said of others. tests/core/parquet_test.cc reads them, where there is no Python.

    python3 tests/e2e/parquet_golden.py
"""
import json
import os

import pyarrow
import pyarrow.parquet

import parquet_files

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "parquet")
os.makedirs(folder, exist_ok=True)
all_texts = {}
for number, (kind, codec, encoding, version) in enumerate([
        ("required", "NONE", "PLAIN", "1.0"), ("required", "SNAPPY", "DICTIONARY", "1.0"),
        ("nullable", "ZSTD", "DICTIONARY", "1.0"), ("nullable", "GZIP", "PLAIN", "2.0"),
        ("nullable", "SNAPPY", "DELTA_LENGTH_BYTE_ARRAY", "2.0"), ("nullable", "NONE", "DELTA_BYTE_ARRAY", "1.0"),
        ("list", "ZSTD", "DICTIONARY", "2.0"), ("list", "SNAPPY", "PLAIN", "1.0"), ("nullable", "NONE", "DICTIONARY", "2.0")]):
    name = f"{kind}_{codec}_{encoding}_v{version[0]}.parquet".lower()
    all_texts[name] = parquet_files.write(os.path.join(folder, name), kind, codec, encoding, version, 40, seed=number,
                                          write_statistics=False, write_page_checksum=number % 2 == 1,
                                          dictionary_pagesize_limit=150 if number == 1 else 1 << 20)
with open(os.path.join(folder, "texts.json"), "w", encoding="utf-8") as out:
    json.dump(all_texts, out, indent=0)
    out.write("\n")

two = ["a", "b"]
refused = {
    "brotli": (dict(text=two), dict(compression="BROTLI"), "packed with BROTLI, which is not supported"),
    "lz4": (dict(text=two), dict(compression="LZ4"), "packed with LZ4_RAW, which is not supported"),
    "numbers": (dict(text=[1, 2], title=two), {}, 'the column "text" has INT64 in it, not texts; it has texts in the columns [title]'),
    "absent": (dict(content=two, title=two), {}, 'no column "text"; it has texts in the columns [content, title], see --key'),
    "struct": (dict(text=[{"a": "x"}] * 2), {}, 'the column "text" is a group'),
    "lists_of_lists": (dict(text=[[["x"]]] * 2), {}, 'the column "text" is a group'),
    "fixed": (dict(text=pyarrow.array([b"xy"] * 2, pyarrow.binary(2))), {}, "FIXED_LEN_BYTE_ARRAY"),
}
said = {}
for name, (columns, options, message) in refused.items():
    pyarrow.parquet.write_table(pyarrow.table(columns), os.path.join(folder, f"refused_{name}.parquet"),
                                write_statistics=False, store_schema=False, **options)
    said[f"refused_{name}.parquet"] = message
with open(os.path.join(folder, "refused.json"), "w", encoding="utf-8") as out:
    json.dump(said, out, indent=0)
    out.write("\n")
