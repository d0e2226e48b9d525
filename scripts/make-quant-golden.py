#!/usr/bin/env python3
"""Writes the golden vectors of tests/golden/quant that no published implementation gave: formats
without blocks, Q2_0, TQ3_0, the MIX formats and the affine form of ROCMFP2.

A second decoder, written from docs/formats.md alone and on purpose unlike the C code: codes are cut
from one big integer per block, and every f32 step is a double operation rounded by struct (the
product and the sum of two f32 are exact or correctly rounded that way).

usage: scripts/make-quant-golden.py     (no arguments; rewrites the files in place)"""
import math
import os
import struct

ROW = 512
FOLDER = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "quant")


def f32(v):
    """v rounded to single precision."""
    if math.isinf(v) or math.isnan(v):
        return v
    return struct.unpack("<f", struct.pack("<f", v))[0]


def f32_bits(v):
    return struct.unpack("<I", struct.pack("<f", v))[0]


def half(data):
    return struct.unpack("<e", data)[0]


def to_half(v):
    return struct.pack("<e", v)


def bfloat(data):
    return struct.unpack("<f", b"\0\0" + data)[0]


def to_bfloat(v):
    bits = f32_bits(v)
    low, high = bits & 0xFFFF, bits >> 16
    if low > 0x8000 or (low == 0x8000 and high & 1):
        high += 1
    return struct.pack("<H", high)


class Random:
    def __init__(self, seed):
        self.s = seed

    def draw(self, n):
        self.s = (self.s * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.s >> 33) % n

    def bytes(self, n):
        return bytes(self.draw(256) for _ in range(n))


def codes(data, bits, n):
    """n codes of `bits` bits of a little-endian bit string."""
    whole = int.from_bytes(data, "little")
    return [whole >> bits * i & (1 << bits) - 1 for i in range(n)]


def rocm_scale(byte):
    """UE4M3, halved; from 0x7f on 0."""
    if byte >= 0x7F:
        return 0.0
    exponent, mantissa = divmod(byte, 8)
    if exponent == 0:
        return mantissa / 1024
    return (8 + mantissa) * 2.0 ** (exponent - 11)


ROCM3 = [0, 1, 2, 4, 0, -1, -2, -4]
ROCM2 = [-1, 0, 1, 2]


def decode_q2_0(b):
    d = half(b[:2])
    return [f32((q - 1) * d) for q in codes(b[2:], 2, 64)]


def encode_q2_0(x):
    d = max(abs(v) for v in x)
    out = 0
    for i, v in enumerate(x):
        q = f32(v * f32(1 / d)) if d else 0.0
        out |= (1 if abs(q) < 0.5 else 2 if q > 0 else 0) << 2 * i
    return to_half(d) + out.to_bytes(16, "little")


TQ3 = [-0.190685, -0.117832, -0.065717, -0.021460, 0.021460, 0.065717, 0.117832, 0.190685]
TQ3_MID = [-0.154259, -0.091775, -0.043589, 0.0, 0.043589, 0.091775, 0.154259]


def decode_tq3(group):
    out = []
    for k in range(4):
        b = group[14 * k:14 * k + 14]
        norm = half(b[:2])
        low, high = codes(b[2:10], 2, 32), codes(b[10:14], 1, 32)
        out += [f32(f32(TQ3[l + 4 * h]) * norm) for l, h in zip(low, high)]
    return out


def encode_tq3(x):
    total = 0.0
    for v in x:
        total = f32(total + f32(v * v))
    norm = f32(math.sqrt(total))
    unit = [f32(v * f32(1 / norm)) if norm > f32(1e-10) else 0.0 for v in x]
    code = [sum(f32(m) <= u for m in TQ3_MID) for u in unit]
    total = 0.0
    for c in code:
        total = f32(total + f32(f32(TQ3[c]) * f32(TQ3[c])))
    length = f32(math.sqrt(total))
    stored = f32(norm / length) if length > f32(1e-10) else norm
    out = b""
    for k in range(4):
        low = sum((c & 3) << 2 * i for i, c in enumerate(code[32 * k:32 * k + 32]))
        high = sum((c >> 2) << i for i, c in enumerate(code[32 * k:32 * k + 32]))
        out += to_half(stored) + low.to_bytes(8, "little") + high.to_bytes(4, "little")
    return out


def decode_mix(b, bits, levels):
    out = []
    for i, c in enumerate(codes(b[:-2], bits, 32)):
        out.append(f32(levels[c] * rocm_scale(b[-2:][i // 16])))
    return out


def decode_books(b, bits, books):
    out = []
    for i, c in enumerate(codes(b[:-2], bits, 32)):
        byte = b[-2:][i // 16]
        out.append(f32(books[byte >> 7][c] * rocm_scale(byte & 127)))
    return out


def decode_affine(b):
    scale, offset = rocm_scale(b[8]), rocm_scale(b[9])
    return [f32(f32(c * scale) - offset) for c in codes(b[:8], 2, 32)]


def text_of_bytes(data):
    return data.hex() + "\n"


def text_of_floats(values):
    words = ["%08x" % f32_bits(v) for v in values]
    return "".join(" ".join(words[i:i + 16]) + "\n" for i in range(0, len(words), 16))


def write(name, number, elements, size, sections):
    with open(os.path.join(FOLDER, name + ".txt"), "w") as f:
        f.write("type %s id %d block_elems %d block_bytes %d\n" % (name, number, elements, size))
        for title, data in sections:
            f.write(title + "\n")
            f.write(text_of_bytes(data) if isinstance(data, bytes) else text_of_floats(data))


def blocks_of(data, size, decode):
    out = []
    for i in range(0, len(data), size):
        out += decode(data[i:i + size])
    return out


def read_input():
    words = open(os.path.join(FOLDER, "input.txt")).read().split()
    at = words.index("x") + 1
    return [struct.unpack("<f", struct.pack("<I", int(w, 16)))[0] for w in words[at:at + ROW]]


def two_sections(encoded, random, size, decode):
    return [("encoded_plain", encoded), ("decoded_plain", blocks_of(encoded, size, decode)),
            ("random_blocks", random), ("random_decoded", blocks_of(random, size, decode))]


def plain_formats(x, r):
    write("f32", 0, 1, 4, [
        ("encoded_plain", b"".join(struct.pack("<f", v) for v in x)), ("decoded_plain", x)])
    special = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00,
               0x7E00]
    data = b"".join(to_half(v) for v in x)
    rest = struct.pack("<11H", *special) + b"".join(
        struct.pack("<H", r.draw(2) << 15 | r.draw(0x7C00)) for _ in range(ROW - 11))
    write("f16", 1, 1, 2, two_sections(data, rest, 2, lambda b: [half(b)]))
    data = b"".join(to_bfloat(v) for v in x)
    rest = b"".join(struct.pack("<H", r.draw(2) << 15 | r.draw(0x7F80)) for _ in range(ROW))
    write("bf16", 30, 1, 2, two_sections(data, rest, 2, lambda b: [bfloat(b)]))


def mix_format(name, number, size, bits, levels, r):
    count = 1 << bits
    books = [sorted({bfloat(to_bfloat((r.draw(2000) - 1000) / 300)) for _ in range(count)})
             for _ in range(2)]
    assert all(len(b) == count for b in books), "levels must differ: take another seed"
    fixed = b"".join(r.bytes(size - 2) + bytes([30 + r.draw(60), 30 + r.draw(60)])
                     for _ in range(ROW // 32))
    coded = b"".join(r.bytes(size - 2) + bytes([r.draw(2) << 7 | 30 + r.draw(60), r.draw(256)])
                     for _ in range(ROW // 32))
    write(name, number, 32, size, [
        ("random_blocks", fixed),
        ("random_decoded", blocks_of(fixed, size, lambda b: decode_mix(b, bits, levels))),
        ("books", books[0] + books[1]),
        ("book_blocks", coded),
        ("book_decoded", blocks_of(coded, size, lambda b: decode_books(b, bits, books)))])


def main():
    x, r = read_input(), Random(2024)
    plain_formats(x, r)
    data = b"".join(encode_q2_0(x[i:i + 64]) for i in range(0, ROW, 64))
    rest = b"".join(to_half((1 + r.draw(1000)) / 4096) + r.bytes(16) for _ in range(ROW // 64))
    write("q2_0", 42, 64, 18, two_sections(data, rest, 18, decode_q2_0))
    data = b"".join(encode_tq3(x[i:i + 128]) for i in range(0, ROW, 128))
    rest = b"".join(to_half((1 + r.draw(1000)) / 256) + r.bytes(12) for _ in range(ROW // 32))
    write("tq3_0", 1042, 128, 56, two_sections(data, rest, 56, decode_tq3))
    mix_format("rocmfp3_mix", 105, 14, 3, ROCM3, r)
    mix_format("rocmfp2_mix", 106, 10, 2, ROCM2, r)
    data = b"".join(r.bytes(8) + bytes([30 + r.draw(60), 30 + r.draw(60)])
                    for _ in range(ROW // 32))
    write("rocmfp2_affine", 1107, 32, 10, [
        ("random_blocks", data), ("random_decoded", blocks_of(data, 10, decode_affine))])


main()
