#!/usr/bin/env python3
"""Writes tests/fixtures/oracle.gguf and the seeds in tests/fuzz/corpus/gguf.

The good files come from the `gguf` Python package (pip install gguf numpy), an implementation of the
format that shares nothing with ours; the damaged ones are spelled here, field by field. Run it from
the root of the tree after a change here; the results are small and kept in the tree.
"""
import pathlib
import struct

import gguf
import numpy as np

root = pathlib.Path(__file__).resolve().parent.parent
seeds = root / "tests/fuzz/corpus/gguf"
fixtures = root / "tests/fixtures"


def good(path, alignment=None, tokens=40, tensors=True):
    w = gguf.GGUFWriter(str(path), "llama")
    if alignment:
        w.add_custom_alignment(alignment)
    w.add_name("oracle")
    w.add_block_count(3)
    w.add_context_length(4096)
    w.add_rope_freq_base(10000.0)
    w.add_head_count([4, 2, 1])
    w.add_bool("oracle.flag", True)
    for kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        bits = int(kind.lstrip("uint"))
        low = 0 if kind[0] == "u" else -(1 << (bits - 1))
        getattr(w, "add_" + kind)("oracle." + kind, low + 200 % (1 << (bits - 1)))
    w.add_float64("oracle.float64", 1e300)
    w.add_array("oracle.floats", [0.5, -2.0])
    w.add_token_list(["tok%d" % i for i in range(tokens)])
    w.add_token_scores([-float(i) for i in range(tokens)])
    if tensors:
        a = np.arange(12, dtype=np.float32).reshape(3, 4)
        w.add_tensor("a.weight", a)
        w.add_tensor("b.weight", a.astype(np.float16))
        q = gguf.quants.quantize(np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64),
                                 gguf.GGMLQuantizationType.Q8_0)
        w.add_tensor("c.weight", q, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def head(tensors, keys, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def tensor(name, kind, offset, *dims):
    return (text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
            + struct.pack("<IQ", kind, offset))


def padded(b, alignment=32):
    return b + bytes(-len(b) % alignment)


u32 = lambda v: struct.pack("<I", v)
u64 = lambda v: struct.pack("<Q", v)
one = padded(head(1, 0) + tensor("a", 0, 0, 8)) + bytes(32)
damaged = {
    "empty_key": head(0, 1) + u64(0) + u32(0) + b"\0",
    "huge_count": head(0, 1) + key("x", 9, u32(0) + u64(1 << 63)),
    "wrapping_count": head(0, 1) + key("x", 9, u32(10) + u64(1 << 61)),
    "huge_string": head(0, 1) + key("x", 8, u64((1 << 64) - 1)),
    "nested_array": head(0, 1) + key("x", 9, u32(9) + u64(1) + u32(0) + u64(0)),
    "alignment_0": head(0, 1) + key("general.alignment", 4, u32(0)),
    "alignment_8": padded(head(1, 1) + key("general.alignment", 4, u32(8)) + tensor("a", 0, 8, 2), 8) + bytes(16),
    "wrapping_size": padded(head(1, 0) + tensor("a", 0, 0, 1 << 32, 1 << 32)) + bytes(32),
    "overlap": padded(head(2, 0) + tensor("a", 0, 0, 9) + tensor("b", 0, 32, 4)) + bytes(64),
    "unsorted": padded(head(2, 0) + tensor("a", 0, 64, 9) + tensor("b", 0, 0, 4)) + bytes(128),
    "split": head(0, 3) + key("split.no", 2, b"\0\0") + key("split.count", 2, b"\3\0")
    + key("split.tensors.count", 5, u32(6)),
    "joined": one * 3,
    "version_2": padded(head(1, 0, 2) + tensor("s", 28, 0)) + bytes(8),
    "rocm_types": padded(head(2, 0) + tensor("a", 104, 0, 32) + tensor("b", 42, 32, 64)) + bytes(64),
}

seeds.mkdir(parents=True, exist_ok=True)
fixtures.mkdir(parents=True, exist_ok=True)
good(fixtures / "oracle.gguf")
good(seeds / "good", tokens=6)
good(seeds / "good_alignment", alignment=64, tokens=2)
good(seeds / "vocabulary_only", tokens=20, tensors=False)
for name, content in damaged.items():
    (seeds / name).write_bytes(content)
