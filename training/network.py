"""The DFlash drafter as a PyTorch network: model/dflash_record.c has the equations, training/README.md the shapes.

A text's features c = norm(fc F) give each layer keys and values, the same for every block of the text. A block is
the last known token and masks, at the positions that follow; all blocks of all texts go through at once, and a mask
keeps each to its own rows and to the features before it."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


def linear(n_in, n_out):
    layer = nn.Linear(n_in, n_out, bias=False)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


def rotate(x, pos, base):
    """x [texts, heads, rows, head_dim], pos [texts, rows]: pairs (i, i + head_dim / 2)."""
    half = x.shape[-1] // 2
    freq = base ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = pos.float()[:, None, :, None] * freq
    cos, sin = angle.cos(), angle.sin()
    u, v = x.float().split(half, -1)
    return torch.cat([u * cos - v * sin, v * cos + u * sin], dim=-1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
        self.attn_norm, self.ffn_norm = Norm(c["embd"], c["eps"]), Norm(c["embd"], c["eps"])
        self.q_norm, self.k_norm = Norm(c["head_dim"], c["eps"]), Norm(c["head_dim"], c["eps"])
        self.q, self.k, self.v = linear(c["embd"], q), linear(c["embd"], kv), linear(c["embd"], kv)
        self.o = linear(q, c["embd"])
        self.gate, self.up, self.down = linear(c["embd"], c["ff"]), linear(c["embd"], c["ff"]), linear(c["ff"], c["embd"])

    def heads(self, x):
        return x.unflatten(-1, (-1, self.c["head_dim"])).transpose(1, 2)

    def keys(self, x, pos):
        k, v = rotate(self.k_norm(self.heads(self.k(x))), pos, self.c["rope_base"]), self.heads(self.v(x))
        groups = self.c["heads"] // self.c["kv_heads"]
        return k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)

    def forward(self, h, ctx, ctx_pos, pos, mask):
        x = self.attn_norm(h)
        q = rotate(self.q_norm(self.heads(self.q(x))), pos, self.c["rope_base"])
        (kc, vc), (kb, vb) = self.keys(ctx, ctx_pos), self.keys(x, pos)
        a = F.scaled_dot_product_attention(q, torch.cat([kc, kb], 2), torch.cat([vc, vb], 2), attn_mask=mask)
        h = h + self.o(a.transpose(1, 2).flatten(2))
        x = self.ffn_norm(h)
        return h + self.down(F.silu(self.gate(x)) * self.up(x))


class Drafter(nn.Module):
    """c: the numbers of data.config plus block, draft_layers, window. embed [vocab, embd], head [draft vocab, embd]:
    the target's, frozen."""

    def __init__(self, c, embed, head):
        super().__init__()
        self.c = c
        self.fc = linear(len(c["taps"]) * c["embd"], c["embd"])
        self.feature_norm, self.norm = Norm(c["embd"], c["eps"]), Norm(c["embd"], c["eps"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["draft_layers"]))
        self.register_buffer("embed", embed, persistent=False)
        self.register_buffer("head", head, persistent=False)

    def mask(self, anchors, n_context):
        """[texts, 1, blocks * B, context + blocks * B]: features before the anchor, within the window, and the rows of
        the own block."""
        n, blocks = anchors.shape
        b = self.c["block"]
        rows = (anchors[:, :, None] + torch.arange(b, device=anchors.device)).flatten(1)
        ctx = torch.arange(n_context, device=anchors.device)
        seen = (ctx < anchors.repeat_interleave(b, 1)[..., None]) & (ctx > rows[..., None] - self.c["window"])
        own = torch.arange(blocks, device=anchors.device).repeat_interleave(b)
        own = (own[:, None] == own)[None].expand(n, -1, -1)
        return torch.cat([seen, own], 2)[:, None], rows

    def forward(self, features, seeds, anchors):
        """features [texts, positions, taps * embd]; anchors [texts, blocks]: positions of the last known tokens, which
        are seeds. Gives the hidden rows after the first of each block: [texts, blocks, B - 1, embd]."""
        n, blocks = anchors.shape
        mask, pos = self.mask(anchors, features.shape[1])
        ctx_pos = torch.arange(features.shape[1], device=features.device)[None].expand(n, -1)
        tokens = torch.full((n, blocks, self.c["block"]), self.c["mask"], device=seeds.device)
        tokens[:, :, 0] = seeds
        h = self.embed[tokens.flatten(1)] * self.c["embed_scale"]
        dtype = torch.get_autocast_dtype(h.device.type) if torch.is_autocast_enabled(h.device.type) else h.dtype
        h, ctx = h.to(dtype), self.feature_norm(self.fc(features.to(dtype)))
        for layer in self.layers:
            h = layer(h, ctx, ctx_pos, pos, mask)
        return self.norm(h).unflatten(1, (blocks, -1))[:, :, 1:]

    def logits(self, hidden):
        return F.linear(hidden, self.head.to(hidden.dtype)).float()


def loss_of(drafter, hidden, labels, weights, rows_at_once=16384):
    """Weighted cross entropy of hidden [.., embd] against labels (rows of the head; below 0: not counted). Logits are
    made in pieces and again for the gradient, so that they never stand in memory together."""
    def piece(h, want, w):
        return (F.cross_entropy(drafter.logits(h), want.clamp(min=0), reduction="none") * w).sum()

    hidden, labels = hidden.flatten(0, -2), labels.flatten()
    weights = weights.flatten() * (labels >= 0)
    total = hidden.new_zeros((), dtype=torch.float32)
    for at in range(0, len(labels), rows_at_once):
        part = slice(at, at + rows_at_once)
        total = total + checkpoint(piece, hidden[part], labels[part], weights[part], use_reentrant=False)
    return total / weights.sum().clamp(min=1e-6)


def depth_weights(block, gamma, device):
    return torch.exp(-torch.arange(block - 1, device=device) / gamma)


def gamma_of(block):
    """4 at a block of 8, 7 at 16."""
    return max(1.0, 4.0 + 3.0 * math.log2(block / 8)) if block >= 4 else 1.0
