"""Parquet files of texts, written by pyarrow in every way that Weft reads, and in some that it refuses."""
import itertools
import random

import pyarrow
import pyarrow.parquet

WORDS = ("the a of and weft loom thread shuttle caf\u00e9 na\u00efve \u65e5\u672c\u8a9e \u0440\u0443\u0441\u0441\u043a\u0438\u0439 "
         "\U0001f642 x \n").split(" ")
CODECS = ["NONE", "SNAPPY", "GZIP", "ZSTD"]
ENCODINGS = ["DICTIONARY", "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]


def texts(rows, seed, nulls):
    """Texts of every length, some of them many times, some empty; None where `nulls`."""
    rng = random.Random(seed)
    some = [" ".join(rng.choice(WORDS) for _ in range(rng.choice([0, 1, 2, 5, 30]))) for _ in range(max(1, rows // 3))]
    out = [rng.choice(some) for _ in range(rows)]
    if nulls:
        out = [None if rng.random() < 0.2 else t for t in out]
        out[: rows // 9] = [None] * (rows // 9)
    return out


def column(kind, rows, seed):
    """(values as Python has them, the column)."""
    if kind == "required":
        values = texts(rows, seed, False)
        return values, pyarrow.array(values, pyarrow.string())
    if kind in ("list", "large_list"):
        rng = random.Random(seed)
        flat = iter(texts(3 * rows, seed, True))
        values = [None if rng.random() < 0.1 else [next(flat) for _ in range(rng.randint(0, 3))] for _ in range(rows)]
        make = pyarrow.list_ if kind == "list" else pyarrow.large_list
        return values, pyarrow.array(values, make(pyarrow.string()))
    types = {"nullable": pyarrow.string(), "large": pyarrow.large_string(), "binary": pyarrow.binary()}
    values = texts(rows, seed, True)
    if kind == "dictionary":
        return values, pyarrow.array(values, pyarrow.string()).dictionary_encode()
    return values, pyarrow.array([v.encode() if v is not None and kind == "binary" else v for v in values], types[kind])


def flat(values):
    """The documents of a column, in order."""
    out = []
    for v in values:
        out += v if isinstance(v, list) else [v]
    return [v for v in out if v is not None and v.strip(" \t\r\n")]


def write(path, kind, codec, encoding, version, rows, seed=1, **more):
    """Writes one file; returns its documents."""
    values, array = column(kind, rows, seed)
    field = pyarrow.field("text", array.type, nullable=kind != "required")
    table = pyarrow.Table.from_arrays([pyarrow.array(range(rows)), array, pyarrow.array([[1.5]] * rows)],
                                      schema=pyarrow.schema([pyarrow.field("id", pyarrow.int64()), field,
                                                             pyarrow.field("x", pyarrow.list_(pyarrow.float64()))]))
    name = "text.list.element" if "list" in kind else "text"
    how = {"use_dictionary": [name]} if encoding == "DICTIONARY" else {
        "use_dictionary": False, "column_encoding": {name: encoding, "id": "PLAIN", "x.list.element": "PLAIN"}}
    options = {"store_schema": False, "row_group_size": max(1, rows // 3), "data_page_size": 300, "write_batch_size": 16, **more}
    pyarrow.parquet.write_table(table, path, compression=codec, data_page_version=version, **how, **options)
    return flat(values)


def every_way():
    """(name, arguments of write) of every kind, codec, encoding and version of pages."""
    kinds = ["required", "nullable", "large", "binary", "dictionary", "list", "large_list"]
    for kind, codec, encoding, version in itertools.product(kinds, CODECS, ENCODINGS, ["1.0", "2.0"]):
        if kind == "dictionary" and encoding.startswith("DELTA"):
            continue  # pyarrow writes these and cannot read them
        yield f"{kind}_{codec}_{encoding}_{version}".lower(), dict(kind=kind, codec=codec, encoding=encoding, version=version)
