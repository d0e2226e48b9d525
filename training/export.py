"""Writes a drafter as GGUF, in floats: architecture dflash-draft, layers of the model counted from zero. A drafter with
a vocabulary of its own has output.weight and d2t: row i of its head says token d2t[i]."""
import itertools
import struct

import numpy as np

import program

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_F32, TENSOR_I32 = 0, 26
ALIGN = 32


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def value(v):
    if isinstance(v, bool):
        return struct.pack("<IB", BOOL, v)
    if isinstance(v, int):
        return struct.pack("<II", U32, v)
    if isinstance(v, float):
        return struct.pack("<If", F32, v)
    if isinstance(v, str):
        return struct.pack("<I", STRING) + text(v)
    kind, code = (BOOL, "?") if isinstance(v[0], bool) else (I32, "i")
    return struct.pack("<IIQ", ARRAY, kind, len(v)) + struct.pack(f"<{len(v)}{code}", *v)


def write_gguf(path, keys, tensors):
    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(keys))
    head += b"".join(text(k) + value(v) for k, v in keys.items())
    at = 0
    for name, a in tensors.items():
        kind = TENSOR_I32 if a.dtype == np.int32 else TENSOR_F32
        head += text(name) + struct.pack("<I", a.ndim) + struct.pack(f"<{a.ndim}Q", *reversed(a.shape))
        head += struct.pack("<IQ", kind, at)
        at += -(-a.nbytes // ALIGN) * ALIGN
    parts = (a.tobytes() + b"\0" * (-a.nbytes % ALIGN) for a in tensors.values())
    program.write(path, itertools.chain([head + b"\0" * (-len(head) % ALIGN)], parts))


def keys_of(c):
    a = "dflash-draft"
    return {
        "general.architecture": a, f"{a}.block_count": c["draft_layers"], f"{a}.embedding_length": c["embd"],
        f"{a}.feed_forward_length": c["ff"], f"{a}.attention.head_count": c["heads"],
        f"{a}.attention.head_count_kv": c["kv_heads"], f"{a}.attention.key_length": c["head_dim"],
        f"{a}.attention.value_length": c["head_dim"], f"{a}.attention.layer_norm_rms_epsilon": c["eps"],
        f"{a}.attention.sliding_window": c["window"],
        f"{a}.attention.sliding_window_pattern": [True] * c["draft_layers"], f"{a}.rope.freq_base": c["rope_base"],
        f"{a}.vocab_size": c["vocab"], f"{a}.dflash.n_layers_of_target": c["layers"],
        f"{a}.dflash.target_layer_ids": c["taps"], f"{a}.dflash.block_size": c["block"],
        f"{a}.dflash.mask_token_id": c["mask"], f"{a}.dflash.is_causal": False,
        f"{a}.dflash.input_embedding_scale": c["embed_scale"],
    }


NAMES = {"attn_norm": "attn_norm", "ffn_norm": "ffn_norm", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
         "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up",
         "down": "ffn_down"}


def export(path, config, state, head, ids):
    """state: the drafter's parameters by name; head [draft vocab, embd], ids [draft vocab] as in draft_vocabulary."""
    names = {"fc": "dflash.fc", "feature_norm": "dflash.hidden_norm", "norm": "output_norm"}
    for i in range(config["draft_layers"]):
        names.update({f"layers.{i}.{k}": f"blk.{i}.{v}" for k, v in NAMES.items()})
    tensors = {f"{v}.weight": state[f"{k}.weight"].float().cpu().numpy() for k, v in names.items()}
    if len(ids) < config["vocab"]:
        tensors["output.weight"] = head.float().cpu().numpy()
        tensors["d2t"] = ids.cpu().numpy().astype(np.int32)
    write_gguf(path, keys_of(config), tensors)
