#!/usr/bin/env python3
"""Makes tests/fixtures/dflash: target.gguf, the model of tests/fixtures/oracle/qwen3.gguf,
with a small DFlash and a small DFlash2 drafter for it,
trained for a minute on a few texts so that they are often right there, each as a GGUF in both published dialects and as a
safetensors checkpoint; and answers.gguf, what an independent forward pass in float64 says:
  N.tokens                the text; its last token begins the block
  N.features              outputs of the tapped layers, side by side, of the tokens before
  v1.N.logits, v2.N.logits [vocab, block - 1]     raw logits of the rows after the first
  v1.prompts, v2.prompts  [8, 24] of the texts that it was trained on
  v1.N.chain, v2.N.chain  the greedy guess (v2: by the selector), up to the first near tie (-1)
Needs torch and transformers; the fixtures are in the tree, so tests do not. Usage: make-dflash-fixtures.py [OUT_DIR]
"""
import importlib.util
import json
import math
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("oracle", os.path.join(HERE, "make-oracle-fixtures.py"))
oracle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(oracle)

D, FF, HEADS, KV, HEAD, LAYERS, BLOCK, MASK, VOCAB = 32, 48, 4, 2, 16, 2, 8, 95, 96
TAPS, WINDOW, BASE, EPS = [0, 2], 24, 1e6, 1e-6
TAPS_CONV, GROUP, RANK, TOP = 2, 8, 8, 6
SCALE, CAP = 0.5, 20.0
SEQUENCES, LENGTH = 24, 72


def make_target():
    _, cls, cfg, _, _, _ = oracle.case_qwen3()
    cfg.rope_theta = BASE               # where transformers knows no rope_parameters
    seed = oracle.SEEDS.index("qwen3") + 100
    torch.manual_seed(seed)
    model = cls(cfg).float().eval()
    oracle.randomise(model, seed)
    return model


def write_target(path, model):
    arch, _, cfg, keys, _, _ = oracle.case_qwen3()
    oracle.write_gguf(path, dict(oracle.base_keys(arch, cfg), **keys), oracle.weights(model, arch, cfg))


def features(target, tokens):
    """Outputs of the tapped layers, side by side: [batch, positions, taps * D]."""
    kept = {}
    hooks = [target.model.layers[t].register_forward_hook(
        lambda m, i, o, t=t: kept.__setitem__(t, o[0] if isinstance(o, tuple) else o)) for t in TAPS]
    with torch.no_grad():
        target(tokens, use_cache=False)
    for h in hooks:
        h.remove()
    return torch.cat([kept[t].reshape(*tokens.shape, D) for t in TAPS], dim=-1)


def greedy(target, prompts, length):
    tokens = prompts
    with torch.no_grad():
        while tokens.shape[1] < length:
            nxt = target(tokens, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, nxt], dim=1)
    return tokens


def make_weights(second, g):
    def normal(*shape, std=None):
        return torch.randn(*shape, generator=g) * (std if std is not None else 1 / math.sqrt(shape[-1]))

    w = {"fc": normal(D, len(TAPS) * D), "hidden_norm": 1 + normal(D, std=0.1), "norm": 1 + normal(D, std=0.1)}
    for i in range(LAYERS):
        w.update({f"{i}.in_norm": 1 + normal(D, std=0.1), f"{i}.post_norm": 1 + normal(D, std=0.1),
                  f"{i}.q": normal(HEADS * HEAD, D), f"{i}.k": normal(KV * HEAD, D), f"{i}.v": normal(KV * HEAD, D),
                  f"{i}.o": normal(D, HEADS * HEAD), f"{i}.q_norm": 1 + normal(HEAD, std=0.1),
                  f"{i}.k_norm": 1 + normal(HEAD, std=0.1), f"{i}.gate": normal(FF, D), f"{i}.up": normal(FF, D),
                  f"{i}.down": normal(D, FF)})
        for half in ("attn", "ffn") if second else ():
            base = normal(2, TAPS_CONV, D, std=0.2)
            base[:, 0] += 1
            w[f"{i}.{half}_base"] = base
            w[f"{i}.{half}_proj"] = normal(2 * TAPS_CONV * (D // GROUP), D, std=0.1)
    if second:
        w.update({"H": normal(RANK, D), "P": normal(VOCAB, RANK, std=0.5), "S": normal(VOCAB, RANK, std=0.5)})
    return w


def rms(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def rope(x, pos):
    """x [batch, rows, heads, HEAD], pairs (i, i + HEAD / 2)."""
    freq = BASE ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
    a = (pos.double()[..., None] * freq).to(x.dtype)[:, :, None]
    u, v = x[..., :HEAD // 2], x[..., HEAD // 2:]
    return torch.cat([u * a.cos() - v * a.sin(), v * a.cos() + u * a.sin()], dim=-1)


def conv(y, dyn, base, side):
    """y [batch, rows, D]; dyn [batch, rows, 2, taps, groups]."""
    out = torch.zeros_like(y)
    for o in range(TAPS_CONV):
        past = F.pad(y, (0, 0, o, 0))[:, :y.shape[1]]
        out = out + (base[side, o] + dyn[:, :, side, o].repeat_interleave(GROUP, dim=-1)) * past
    return out


def forward(w, second, embed, head, feats, seed, pos, round_cache=False):
    """feats [n, context, taps * D] of positions 0 .. context-1, of which each block sees those before pos [n];
    seed [n]. round_cache: keys and values go through f16. Returns the last hidden rows and the logits of the rows after the first."""
    n, context = feats.shape[0], feats.shape[1]
    ctx = rms(feats @ w["fc"].T, w["hidden_norm"])
    tokens = torch.full((n, BLOCK), MASK)
    tokens[:, 0] = seed
    h = embed[tokens]
    cpos = torch.arange(context)[None].expand(n, -1)
    bpos = pos[:, None] + torch.arange(BLOCK)[None]
    for i in range(LAYERS):
        sliding = i == 0
        causal = sliding and not second
        x = rms(h, w[f"{i}.in_norm"])
        if second:
            dyn = (x @ w[f"{i}.attn_proj"].T).reshape(n, BLOCK, 2, TAPS_CONV, D // GROUP)
            x = conv(x, dyn, w[f"{i}.attn_base"], 0)
        q = rope(rms((x @ w[f"{i}.q"].T).reshape(n, BLOCK, HEADS, HEAD), w[f"{i}.q_norm"]), bpos)
        kb = rope(rms((x @ w[f"{i}.k"].T).reshape(n, BLOCK, KV, HEAD), w[f"{i}.k_norm"]), bpos)
        kc = rope(rms((ctx @ w[f"{i}.k"].T).reshape(n, context, KV, HEAD), w[f"{i}.k_norm"]), cpos)
        k = torch.cat([kc, kb], dim=1).repeat_interleave(HEADS // KV, dim=2)
        v = torch.cat([(ctx @ w[f"{i}.v"].T).reshape(n, context, KV, HEAD),
                       (x @ w[f"{i}.v"].T).reshape(n, BLOCK, KV, HEAD)], dim=1).repeat_interleave(HEADS // KV, dim=2)
        kpos = torch.cat([cpos, bpos], dim=1)
        see = torch.cat([cpos < pos[:, None], torch.ones(n, BLOCK, dtype=torch.bool)], dim=1)[:, None].expand(
            -1, BLOCK, -1)
        if sliding:
            see = see & (bpos[:, :, None] - kpos[:, None] < WINDOW)
        if causal:
            own = torch.cat([torch.ones(BLOCK, context, dtype=torch.bool),
                             torch.tril(torch.ones(BLOCK, BLOCK)).bool()], dim=1)
            see = see & own[None]
        if round_cache:
            k, v = k.half().to(q.dtype), v.half().to(q.dtype)
        s = torch.einsum("nbhd,nkhd->nhbk", q, k) / math.sqrt(HEAD)
        s = s.masked_fill(~see[:, None], -math.inf).softmax(-1)
        a = torch.einsum("nhbk,nkhd->nbhd", s, v).reshape(n, BLOCK, HEADS * HEAD) @ w[f"{i}.o"].T
        h = h + (conv(a, dyn, w[f"{i}.attn_base"], 1) if second else a)
        x = rms(h, w[f"{i}.post_norm"])
        if second:
            dyn = (x @ w[f"{i}.ffn_proj"].T).reshape(n, BLOCK, 2, TAPS_CONV, D // GROUP)
            x = conv(x, dyn, w[f"{i}.ffn_base"], 0)
        m = (F.silu(x @ w[f"{i}.gate"].T) * (x @ w[f"{i}.up"].T)) @ w[f"{i}.down"].T
        h = h + (conv(m, dyn, w[f"{i}.ffn_base"], 1) if second else m)
    out = rms(h, w["norm"])[:, 1:]
    return out, out @ head.T


def capped(z, second):
    return CAP * torch.tanh(z * SCALE / CAP) if second else z


def scores(w, out, logits, cand, before):
    """Of candidates [.., k] after the tokens `before`."""
    u = logits.gather(-1, cand)
    return u + torch.einsum("...r,...r,...kr->...k", w["P"][before], out @ w["H"].T, w["S"][cand])


def chain(w, second, out, logits, seed):
    logits, tokens = capped(logits, second), []
    for i in range(BLOCK - 1):
        cand = logits[i].topk(TOP).indices
        s = scores(w, out[i], logits[i], cand, tokens[-1] if tokens else seed) if second else logits[i][cand]
        top = s.sort(descending=True).values
        if top[0] - top[1] < 0.03:
            return tokens + [-1]
        tokens.append(int(cand[s.argmax()]))
    return tokens


def train(w, second, target, embed, head, prompts, steps, g):
    texts = greedy(target, prompts, LENGTH)
    feats = features(target, texts)
    params = {k: v.clone().requires_grad_() for k, v in w.items()}
    opt = torch.optim.AdamW(params.values(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0)
    decay = torch.exp(-torch.arange(BLOCK - 1) / 4.0)
    for step in range(steps):
        for group in opt.param_groups:
            group["lr"] = 3e-3 * (1 - 0.9 * step / steps)
        rows = torch.randint(0, SEQUENCES, (64,), generator=g)
        pos = torch.randint(8, LENGTH - BLOCK, (64,), generator=g)
        at = pos[:, None] + torch.arange(BLOCK)[None]
        block = texts[rows[:, None], at]
        out, logits = forward(params, second, embed, head, feats[rows], block[:, 0], pos)
        logits = capped(logits, second)
        loss = (F.cross_entropy(logits.reshape(-1, VOCAB), block[:, 1:].reshape(-1), reduction="none")
                .reshape(-1, BLOCK - 1) * decay).sum(-1).mean()
        if second:
            cand = torch.cat([logits.topk(TOP - 1).indices, block[:, 1:, None]], dim=-1)
            s = scores(params, out, logits, cand, block[:, :-1])
            loss = loss + (F.cross_entropy(s.reshape(-1, TOP), torch.full((64 * (BLOCK - 1),), TOP - 1),
                                           reduction="none").reshape(-1, BLOCK - 1) * decay).sum(-1).mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        opt.step()
        if step % 200 == 0 or step == steps - 1:
            hit = (logits.argmax(-1) == block[:, 1:]).float().mean(0)
            print(f"step {step}: loss {float(loss):.3f}, right by depth {[round(float(x), 2) for x in hit]}")
    return {k: v.detach().half().float() for k, v in params.items()}       # as the files hold them


HF = {"in_norm": "input_layernorm.weight", "post_norm": "post_attention_layernorm.weight", "q": "self_attn.q_proj.weight",
      "k": "self_attn.k_proj.weight", "v": "self_attn.v_proj.weight", "o": "self_attn.o_proj.weight",
      "q_norm": "self_attn.q_norm.weight", "k_norm": "self_attn.k_norm.weight", "gate": "mlp.gate_proj.weight",
      "up": "mlp.up_proj.weight", "down": "mlp.down_proj.weight", "attn_base": "attention_conv.base_kernel",
      "attn_proj": "attention_conv.kernel_projection.weight", "ffn_base": "mlp_conv.base_kernel",
      "ffn_proj": "mlp_conv.kernel_projection.weight"}
HF_TOP = {"fc": "fc.weight", "hidden_norm": "hidden_norm.weight", "norm": "norm.weight",
          "H": "candidate_selector.hidden_projection.weight", "P": "candidate_selector.predecessor_codebook",
          "S": "candidate_selector.successor_codebook"}
BLK = {"in_norm": "attn_norm.weight", "post_norm": "ffn_norm.weight", "q": "attn_q.weight", "k": "attn_k.weight",
       "v": "attn_v.weight", "o": "attn_output.weight", "q_norm": "attn_q_norm.weight", "k_norm": "attn_k_norm.weight",
       "gate": "ffn_gate.weight", "up": "ffn_up.weight", "down": "ffn_down.weight"}
LLAMA_BLK = dict(BLK, attn_base="attn_conv_base", attn_proj="attn_conv_proj.weight", ffn_base="ffn_conv_base",
                 ffn_proj="ffn_conv_proj.weight")
LLAMA = {"fc": "fc.weight", "hidden_norm": "enc.output_norm.weight", "norm": "output_norm.weight",
         "H": "selector_hidden.weight", "P": "selector_predecessor.weight", "S": "selector_successor.weight"}
BOX_BLK = dict(BLK, attn_base="attn_conv.base", attn_proj="attn_conv.proj.weight", ffn_base="ffn_conv.base",
               ffn_proj="ffn_conv.proj.weight")
BOX = {"fc": "dflash.fc.weight", "hidden_norm": "dflash.hidden_norm.weight", "norm": "output_norm.weight",
       "H": "dflash.selector.hproj.weight", "P": "dflash.selector.pred_cb", "S": "dflash.selector.succ_cb"}


def named(w, top, blk, prefix):
    out = {}
    for k, v in w.items():
        layer, _, rest = k.partition(".")
        out[f"{prefix}.{layer}.{blk[rest]}" if rest else top[k]] = v.numpy().astype(np.float16)
    return out


def common_keys(arch):
    return {"general.architecture": arch, f"{arch}.block_count": LAYERS, f"{arch}.embedding_length": D,
            f"{arch}.feed_forward_length": FF, f"{arch}.attention.head_count": HEADS,
            f"{arch}.attention.head_count_kv": KV, f"{arch}.attention.key_length": HEAD,
            f"{arch}.attention.value_length": HEAD, f"{arch}.attention.layer_norm_rms_epsilon": EPS,
            f"{arch}.rope.freq_base": BASE, f"{arch}.attention.sliding_window": WINDOW,
            f"{arch}.attention.sliding_window_pattern": [True, False]}


def write_llama(path, w, second):
    keys = dict(common_keys("dflash"), **{"dflash.target_layers": [t + 1 for t in TAPS], "dflash.block_size": BLOCK,
                                          "tokenizer.ggml.mask_token_id": MASK, "dflash.context_length": 512})
    if second:
        keys.update({"dflash.conv_kernel_size": TAPS_CONV, "dflash.conv_group_size": GROUP, "dflash.selector_rank": RANK,
                     "dflash.selector_top_k": TOP, "dflash.attention.causal": False, "dflash.logit_scale": SCALE,
                     "dflash.final_logit_softcapping": CAP})
    oracle.write_gguf(path, keys, named(w, LLAMA, LLAMA_BLK, "blk"))


def write_lucebox(path, w, second):
    a = "qwen35-dflash-draft"
    keys = dict(common_keys(a), **{f"{a}.dflash.target_layer_ids": TAPS, f"{a}.dflash.n_target_layers": len(TAPS),
                                   f"{a}.dflash.block_size": BLOCK, f"{a}.dflash.mask_token_id": MASK,
                                   f"{a}.vocab_size": VOCAB, f"{a}.context_length": 512})
    if second:
        keys.update({f"{a}.dflash.dflash2.conv_kernel_size": TAPS_CONV, f"{a}.dflash.dflash2.conv_group_size": GROUP,
                     f"{a}.dflash.dflash2.selector_rank": RANK, f"{a}.dflash.dflash2.selector_top_k": TOP,
                     f"{a}.dflash.is_causal": False, f"{a}.dflash.logit_scale": SCALE,
                     f"{a}.dflash.final_logit_softcapping": CAP})
    oracle.write_gguf(path, keys, named(w, BOX, BOX_BLK, "blk"))


def write_checkpoint(folder, w, second):
    os.makedirs(folder, exist_ok=True)
    config = {"architectures": ["DFlash2DraftModel" if second else "DFlashDraftModel"], "hidden_size": D,
              "num_hidden_layers": LAYERS, "intermediate_size": FF, "num_attention_heads": HEADS,
              "num_key_value_heads": KV, "head_dim": HEAD, "rms_norm_eps": EPS, "vocab_size": VOCAB,
              "num_target_layers": 3, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW,
              "rope_parameters": {"rope_theta": BASE, "rope_type": "default"}, "rope_scaling": None,
              "dflash_config": {"target_layer_ids": TAPS, "mask_token_id": MASK, "block_size": BLOCK}}
    if second:
        config["is_causal"] = False
        config["dflash_config"].update(conv_kernel_size=TAPS_CONV, conv_group_size=GROUP, selector_rank=RANK,
                                       selector_top_k=TOP, output_multiplier=SCALE, final_logit_softcapping=CAP)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, a in named(w, HF_TOP, HF, "layers").items():
        header[name] = {"dtype": "F16", "shape": list(a.shape), "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "tests", "fixtures", "dflash")
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    target = make_target()
    write_target(os.path.join(out, "target.gguf"), target)
    embed, head = target.model.embed_tokens.weight.detach(), target.lm_head.weight.detach()
    g = torch.Generator().manual_seed(7)
    answers = {}
    texts = {0: torch.randint(0, VOCAB, (6,), generator=g),
             1: greedy(target, torch.randint(0, VOCAB, (1, 9), generator=g), 61)[0]}
    for i, t in texts.items():
        answers[f"{i}.tokens"] = t.numpy().astype(np.int32)
    for second in (False, True):
        kind = "v2" if second else "v1"
        prompts = torch.randint(0, VOCAB, (SEQUENCES, 8), generator=g)
        answers[f"{kind}.prompts"] = prompts.numpy().astype(np.int32)
        w = train(make_weights(second, g), second, target, embed, head, prompts, 1200, g)
        write_llama(os.path.join(out, f"{kind}_llama.gguf"), w, second)
        write_lucebox(os.path.join(out, f"{kind}_lucebox.gguf"), w, second)
        write_checkpoint(os.path.join(out, kind), w, second)
        wide = {k: v.double() for k, v in w.items()}
        double = target.double()
        for i, t in texts.items():
            feats = features(double, t[None, :-1])
            o, z = forward(wide, second, embed.double(), head.double(), feats, t[-1:], torch.tensor([len(t) - 1]), True)
            answers[f"{i}.features"] = feats[0].float().numpy()
            answers[f"{kind}.{i}.logits"] = z[0].float().numpy()
            print(f"{kind}.{i}: std of logits {float(z.std()):.2f}")
            answers[f"{kind}.{i}.chain"] = np.array(chain(wide, second, o[0], z[0], int(t[-1])), dtype=np.int32)
        target = target.float()
    oracle.write_gguf(os.path.join(out, "answers.gguf"), {"general.architecture": "answers", "answers.texts": len(texts)},
                      answers)


main()
