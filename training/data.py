"""Reads data.safetensors, which luce train-drafter writes (cli/train_data.c):
  tokens [N] i32, prompt [T], length [T] i32: texts one after the other, tokens of the prompt and of the whole
  features [N, taps * embd] bf16: outputs of the model's layers `taps`, side by side, at each token
  norm [embd], embed, head [vocab, embd] f32: the model's last norm, embedding and head, decoded; without head the
  embedding is both
  __metadata__: numbers of the model as text."""
import json
import struct

import numpy as np
import torch

NUMPY = {"I32": np.int32, "F32": np.float32, "BF16": np.int16}      # bf16: its bits


class Data:
    def __init__(self, path):
        with open(path, "rb") as f:
            size, = struct.unpack("<Q", f.read(8))
            head = json.loads(f.read(size))
        meta, start, got = head.pop("__metadata__"), 8 + size, {}
        for name, t in head.items():
            dtype = np.dtype(NUMPY[t["dtype"]])
            got[name] = np.memmap(path, dtype, "c", start + t["data_offsets"][0], tuple(t["shape"]))
        self.config = {k: int(meta[k]) for k in ("embd", "vocab", "layers", "heads", "kv_heads", "head_dim", "ff", "mask")}
        self.config.update({k: float(meta[k]) for k in ("eps", "rope_base", "embed_scale")})
        self.config["taps"] = [int(i) for i in meta["taps"].split(",")]
        self.config["ends"] = [int(i) for i in meta["ends"].split(",") if i]
        self.tokens = torch.from_numpy(np.array(got["tokens"])).long()
        self.prompt, self.length = (torch.from_numpy(np.array(got[k])).long() for k in ("prompt", "length"))
        self.start = torch.cumsum(self.length, 0) - self.length
        self.features = torch.from_numpy(got["features"]).view(torch.bfloat16)
        self.norm = torch.from_numpy(np.array(got["norm"]))
        self.embed = torch.from_numpy(np.array(got["embed"]))
        self.head = torch.from_numpy(np.array(got["head"])) if "head" in got else self.embed

    def usable(self):
        """Texts with an answer that has something to guess."""
        return torch.nonzero(self.length - self.prompt >= 3).flatten()

    def split(self):
        """Texts to learn from, and one in 40 (16 to 256) to judge by, always the same ones."""
        texts = self.usable()
        texts = texts[torch.randperm(len(texts), generator=torch.Generator().manual_seed(1))]
        held = min(max(16, min(256, len(texts) // 40)), len(texts) // 2)
        return texts[held:], texts[:held]

    def to_device(self, device):
        """Features go where the network is if they fit beside it."""
        self.tokens = self.tokens.to(device)
        if device.type == "cuda" and self.features.nbytes < 0.6 * torch.cuda.mem_get_info(device)[0]:
            self.features = self.features.to(device)

    def batch(self, texts, device):
        """features [n, S, W], tokens [n, S + pad], prompt [n], length [n]; what lies behind a text is never seen."""
        start, length = self.start[texts], self.length[texts]
        s = -(-int(length.max()) // 64) * 64       # few shapes
        at = (start[:, None] + torch.arange(s)).clamp(max=len(self.tokens) - 1)
        features = self.features[at.to(self.features.device)].to(device, non_blocking=True)
        return features, self.tokens[at.to(device)], self.prompt[texts].to(device), length.to(device)


def draft_vocabulary(data, texts, most):
    """ids [M] ascending: the most frequent tokens of the answers, with every end token; the target's ids of the
    drafter's rows."""
    vocab = data.config["vocab"]
    if most >= vocab:
        return torch.arange(vocab)
    count, tokens = torch.zeros(vocab, dtype=torch.long), data.tokens.cpu()
    for t in texts.tolist():
        a, b = int(data.start[t] + data.prompt[t]), int(data.start[t] + data.length[t])
        count += torch.bincount(tokens[a:b], minlength=vocab)
    count[data.config["ends"]] = count.max() + 1
    return torch.argsort(count, descending=True, stable=True)[:most].sort().values


def rows_of(ids, vocab):
    """[vocab]: the drafter's row of each token, -1 where there is none."""
    to_draft = torch.full((vocab,), -1, dtype=torch.long)
    to_draft[ids] = torch.arange(len(ids))
    return to_draft


def blocks_of(tokens, anchors, length, block, to_draft):
    """The last known tokens [n, blocks], and what follows them as rows of the head [n, blocks, B - 1]; -1: nothing, or
    a token that the drafter cannot say."""
    at = anchors[:, :, None] + torch.arange(1, block, device=anchors.device)
    want = tokens.gather(1, at.flatten(1).clamp(max=tokens.shape[1] - 1)).view_as(at)
    want = to_draft[want].masked_fill(at >= length[:, None, None], -1)
    return tokens.gather(1, anchors), want
