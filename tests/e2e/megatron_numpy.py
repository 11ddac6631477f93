"""Reads and writes .bin/.idx with numpy alone, by the description of the format, and compares with weft."""
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}


def read(prefix):
    idx = open(prefix + ".idx", "rb").read()
    assert idx[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, entries = struct.unpack_from("<QBQQ", idx, 9)
    assert version == 1
    lengths = np.frombuffer(idx, np.int32, sequences, 34)
    offsets = np.frombuffer(idx, np.int64, sequences, 34 + 4 * sequences)
    documents = np.frombuffer(idx, np.int64, entries, 34 + 12 * sequences)
    assert len(idx) == 34 + 12 * sequences + 8 * entries
    data = open(prefix + ".bin", "rb").read()
    texts = [np.frombuffer(data, TYPES[code], n, o) for n, o in zip(lengths, offsets)]
    return [np.concatenate([[], *texts[a:b]]).astype(int).tolist() for a, b in zip(documents[:-1], documents[1:])]


def write(prefix, code, documents):
    """`documents`: lists of sequences."""
    sequences = [s for d in documents for s in d]
    size = np.dtype(TYPES[code]).itemsize
    with open(prefix + ".bin", "wb") as out:
        for s in sequences:
            out.write(np.array(s, TYPES[code]).tobytes())
    ends = np.cumsum([0] + [len(s) * size for s in sequences])
    counts = np.cumsum([0] + [len(d) for d in documents])
    with open(prefix + ".idx", "wb") as out:
        out.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(sequences), len(documents) + 1))
        for array, kind in (([len(s) for s in sequences], np.int32), (ends[:-1], np.int64), (counts, np.int64)):
            out.write(np.array(array, kind).tobytes())


def weft(*arguments):
    run = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


with tempfile.TemporaryDirectory() as folder:
    lines = ["first", "the second one", "caf\u00e9"]
    text = os.path.join(folder, "text")
    open(text, "w", encoding="utf-8").write("\n".join(lines))
    made = os.path.join(folder, "made")
    weft("data", "build", "--document", "line", "--out", made, text)
    assert read(made) == [list(line.encode()) + [256] for line in lines]
    copy = os.path.join(folder, "copy")
    write(copy, 8, [[list(line.encode()) + [256]] for line in lines])
    for ending in (".bin", ".idx"):
        assert open(made + ending, "rb").read() == open(copy + ending, "rb").read(), ending
    for code in TYPES:
        theirs = os.path.join(folder, f"theirs{code}")
        write(theirs, code, [[[1, 2, 3], [4]], [], [[100, 7]]])
        weft("data", "check", theirs)
        assert weft("data", "inspect", theirs, "--document", "0", "--ids").split() == ["1", "2", "3", "4"]
        assert weft("data", "inspect", theirs, "--document", "2", "--ids").split() == ["100", "7"]
print("the same bytes both ways, all type codes")
