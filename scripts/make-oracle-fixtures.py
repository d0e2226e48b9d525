#!/usr/bin/env python3
"""Makes tests/fixtures/oracle/*.gguf: tiny random models with the answers of HF transformers.

Each file is a complete model of one family in F32, written as converters write it (names, permuted
rows, shifted norms), plus the oracle as extra tensors: for sequence N the tokens (oracle.N.tokens), the
logits at every position (oracle.N.logits [vocab, positions]) and, for short sequences, the residual
stream after every layer (oracle.N.hidden [embd, positions, layers]). oracle.N.context is the longest
context the model is told of. Needs torch and transformers; the fixtures are in the tree, so tests do
not. Usage: make-oracle-fixtures.py [OUT_DIR] [CASE ...]
"""
import contextlib
import math
import os
import struct
import sys

import numpy as np
import torch
import transformers as hf

F32, F16, I32 = 0, 1, 26
U32_KEY, F32_KEY, BOOL_KEY, STR_KEY, ARRAY_KEY = 4, 6, 7, 8, 9


def gguf_text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def gguf_value(v):
    if isinstance(v, bool):
        return BOOL_KEY, struct.pack("<?", v)
    if isinstance(v, int):
        return U32_KEY, struct.pack("<I", v)
    if isinstance(v, float):
        return F32_KEY, struct.pack("<f", v)
    if isinstance(v, str):
        return STR_KEY, gguf_text(v)
    kind = gguf_value(v[0])[0]
    return ARRAY_KEY, struct.pack("<IQ", kind, len(v)) + b"".join(gguf_value(x)[1] for x in v)


def write_gguf(path, keys, tensors):
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)))
    for name, v in keys.items():
        kind, data = gguf_value(v)
        out += gguf_text(name) + struct.pack("<I", kind) + data
    at = 0
    for name, a in tensors.items():
        out += gguf_text(name) + struct.pack("<I", a.ndim)
        out += b"".join(struct.pack("<Q", n) for n in reversed(a.shape))
        out += struct.pack("<IQ", {"int32": I32, "float16": F16}.get(a.dtype.name, F32), at)
        at += (a.nbytes + 31) // 32 * 32
    out += bytes(-len(out) % 32)
    for a in tensors.values():
        out += a.tobytes() + bytes(-a.nbytes % 32)
    with open(path, "wb") as f:
        f.write(out)


def numbers(t):
    return np.ascontiguousarray(t.detach().float().numpy(), dtype=np.float32)


def permute(w, heads):
    """Half-split rotary rows of each head to neighbouring ones (arch llama)."""
    w = numbers(w)
    return np.ascontiguousarray(
        w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape))


NAMES = {
    "linear_attn.conv1d": "ssm_conv1d", "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.A_log": "ssm_a",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out", "linear_attn.in_proj_qkv.": "attn_qkv.",
    "linear_attn.in_proj_z.": "attn_gate.", "linear_attn.in_proj_b.": "ssm_beta.",
    "linear_attn.in_proj_a.": "ssm_alpha.", "linear_attn.in_proj_ba.": "ssm_ba.",
    "linear_attn.in_proj_qkvz.": "attn_qkv.",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "input_layernorm.weight": "attn_norm.weight", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight", "mlp.experts.gate_up_proj": "ffn_gate_exps.weight", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
}


HYBRIDS = ("qwen35", "qwen35moe", "qwen3next")


def tensor_name(name, arch):
    post = {"gemma3": {"post_attention_layernorm": "post_attention_norm",
                       "pre_feedforward_layernorm": "ffn_norm",
                       "post_feedforward_layernorm": "post_ffw_norm"}}
    for a in HYBRIDS:
        post[a] = {"post_attention_layernorm": "post_attention_norm"}
    table = dict(NAMES, **post.get(arch, {"post_attention_layernorm": "ffn_norm"}))
    name = name.removeprefix("model.")
    top = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}
    if name in top:
        return top[name]
    _, layer, rest = name.split(".", 2)
    for a, b in table.items():
        if rest.startswith(a):
            return f"blk.{layer}.{b}{rest[len(a):]}"
    raise SystemExit(f"no name for {name}")


def randomise(model, seed):
    """Values that show mistakes: no weight at its default, logits with spread."""
    g = torch.Generator().manual_seed(seed)
    shifted = any(s in type(model).__name__ for s in ("Gemma", "Qwen3_5", "Qwen3Next", "NextToken"))
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g)
            if "norm" in name:
                p.copy_(0.1 * noise + (0 if shifted and "linear_attn" not in name else 1))
            elif name.endswith("A_log"):
                p.copy_(0.5 * noise - 1)
            elif name.endswith("dt_bias"):
                p.copy_(noise)
            elif "conv1d" in name:
                p.copy_(0.7 * noise)
            elif name.endswith("bias"):
                p.copy_(0.5 * noise)
            elif "embed_tokens" in name or "lm_head" in name:
                p.copy_(0.3 * noise)
            elif name.endswith("mlp.gate.weight"):
                p.copy_(0.5 * noise)
            else:
                p.copy_(1.5 / math.sqrt(p.shape[-1]) * noise)


def tiled(w, hk, hv, size):
    """Value heads from grouped by key head to tiled over key heads: rows of `size` a head."""
    return np.ascontiguousarray(
        w.reshape(hk, hv // hk, size, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape))


def hybrid_weights(n, w, arch, cfg):
    """What converters do to the tensors of recurrent layers; names and arrays."""
    hk, hv = cfg.linear_num_key_heads, cfg.linear_num_value_heads
    dk, dv, r = cfg.linear_key_head_dim, cfg.linear_value_head_dim, hv // hk
    if n.endswith("norm.weight") and not n.endswith("ssm_norm.weight"):
        return {n: w + np.float32(1)}
    if n.endswith("ssm_a"):
        w = -np.exp(w)
    if n.endswith("ssm_conv1d.weight"):
        w = np.ascontiguousarray(w[:, 0])
    if n.endswith("ffn_gate_inp_shexp.weight"):
        w = w.reshape(-1)
    if arch == "qwen3next":
        if n.endswith("attn_qkv.weight") and w.shape[0] == hk * (2 * dk + 2 * r * dv):
            heads = w.reshape(hk, 2 * dk + 2 * r * dv, -1)
            q, k, v, z = np.split(heads, [dk, 2 * dk, 2 * dk + r * dv], axis=1)
            flat = [np.ascontiguousarray(x.reshape(-1, w.shape[1])) for x in (q, k, v, z)]
            return {n: np.concatenate(flat[:3]), n.replace("attn_qkv", "attn_gate"): flat[3]}
        return {n: w}
    values = 2 * hk * dk                    # where the rows of v begin
    if n.endswith(("attn_qkv.weight", "ssm_conv1d.weight")) and w.shape[0] == values + hv * dv:
        w = np.concatenate([w[:values], tiled(w[values:], hk, hv, dv)])
    if n.endswith("attn_gate.weight"):
        w = tiled(w, hk, hv, dv)
    if n.endswith(("ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias")):
        w = tiled(w, hk, hv, 1)
    if n.endswith("ssm_out.weight"):
        w = np.ascontiguousarray(tiled(np.ascontiguousarray(w.T), hk, hv, dv).T)
    return {n: w}


def weights(model, arch, cfg):
    out = {}
    for name, p in model.named_parameters():
        n = tensor_name(name, arch)
        w = numbers(p)
        if arch in HYBRIDS:
            both = hybrid_weights(n, w, arch, cfg)
            out.update(both)
            w = both[n]
        if arch == "llama" and ".attn_q." in n:
            w = permute(p, cfg.num_attention_heads)
        if arch == "llama" and ".attn_k." in n:
            w = permute(p, cfg.num_key_value_heads)
        if arch == "gemma3" and n.endswith("norm.weight"):
            w = w + np.float32(1)
        if n.endswith("ffn_gate_exps.weight"):          # per expert gate rows, then up rows
            half = w.shape[1] // 2
            out[n.replace("gate", "up")] = np.ascontiguousarray(w[:, half:])
            w = np.ascontiguousarray(w[:, :half])
        out[n] = w
    return out


def check_routes(model, tokens, used):
    """A near tie of the last chosen expert and the next would go either way with a rounded cache."""
    logits = []
    hooks = [m.register_forward_hook(lambda m, i, o: logits.append(torch.nn.functional.linear(i[0], m.weight)))
             for n, m in model.named_modules() if n.endswith("mlp.gate")]
    with torch.no_grad():
        model(torch.tensor([tokens]), use_cache=False)
    for h in hooks:
        h.remove()
    for z in logits:
        s = z.reshape(-1, z.shape[-1]).sort(dim=-1, descending=True).values
        if (s[:, used - 1] - s[:, used]).min() < 0.03:
            return False
    return True


@contextlib.contextmanager
def exact(model):
    """Recurrences add up what f32 rounds: these models answer in float64, their casts to f32 included."""
    names = ("float32", "float")
    kept = [getattr(torch, n) for n in names], torch.Tensor.float
    model.double()
    for n in names:
        setattr(torch, n, torch.float64)
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        for n, v in zip(names, kept[0]):
            setattr(torch, n, v)
        torch.Tensor.float = kept[1]
        model.float()


def answers(model, tokens, hidden):
    kept = []
    hooks = [l.register_forward_hook(lambda m, i, o: kept.append(o[0] if isinstance(o, tuple) else o))
             for l in model.model.layers] if hidden else []
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
    for h in hooks:
        h.remove()
    return logits, [k.reshape(len(tokens), -1) for k in kept]


def llama3_factors(dims, base, factor, low, high, n0):
    f = []
    for i in range(dims // 2):
        length = 2 * math.pi * base ** (2 * i / dims)
        t = (n0 / length - low) / (high - low)
        f.append(1 if length < n0 / high else factor if length > n0 / low else 1 / ((1 - t) / factor + t))
    return np.array(f, dtype=np.float32)


def base_keys(arch, c):
    return {
        "general.architecture": arch, f"{arch}.block_count": c.num_hidden_layers,
        f"{arch}.context_length": c.max_position_embeddings, f"{arch}.embedding_length": c.hidden_size,
        **({f"{arch}.feed_forward_length": c.intermediate_size} if getattr(c, "intermediate_size", None) else {}),
        f"{arch}.attention.head_count": c.num_attention_heads,
        f"{arch}.attention.head_count_kv": c.num_key_value_heads,
        f"{arch}.attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
    }


COMMON = dict(vocab_size=96, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
              num_attention_heads=6, num_key_value_heads=2, attn_implementation="eager", pad_token_id=0,
              bos_token_id=1, eos_token_id=2)


def rope(base, **more):
    return {"rope_type": "default", "rope_theta": base, **more}


def case_llama():
    c = hf.LlamaConfig(**COMMON, head_dim=8, rms_norm_eps=1e-5, max_position_embeddings=512,
                       rope_parameters=rope(10000.0), tie_word_embeddings=False)
    return "llama", hf.LlamaForCausalLM, c, {"llama.rope.freq_base": 10000.0}, {}, [1, 17, 70]


def case_llama3():
    c = hf.LlamaConfig(**dict(COMMON, num_hidden_layers=2), head_dim=12, rms_norm_eps=1e-5, max_position_embeddings=512,
                       tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                       rope_parameters=rope(10000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                            high_freq_factor=4.0, original_max_position_embeddings=64))
    keys = {"llama.rope.freq_base": 10000.0, "llama.attention.key_length": 12,
            "llama.attention.value_length": 12, "llama.rope.dimension_count": 12}
    extra = {"rope_freqs.weight": llama3_factors(12, 10000.0, 8.0, 1.0, 4.0, 64)}
    return "llama", hf.LlamaForCausalLM, c, keys, extra, [1, 17, 300]


def case_llama_linear():
    c = hf.LlamaConfig(**COMMON, head_dim=8, rms_norm_eps=1e-5, max_position_embeddings=512,
                       rope_parameters=rope(10000.0, rope_type="linear", factor=4.0),
                       tie_word_embeddings=True)
    keys = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    return "llama", hf.LlamaForCausalLM, c, keys, {}, [1, 17, 100]


def case_llama_yarn():
    c = hf.LlamaConfig(**dict(COMMON, num_hidden_layers=2), head_dim=16, rms_norm_eps=1e-5, max_position_embeddings=512,
                       rope_parameters=rope(10000.0, rope_type="yarn", factor=8.0, beta_fast=32.0,
                                            beta_slow=1.0, original_max_position_embeddings=64),
                       tie_word_embeddings=True)
    keys = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 8.0,
            "llama.rope.scaling.original_context_length": 64, "llama.attention.key_length": 16,
            "llama.attention.value_length": 16}
    return "llama", hf.LlamaForCausalLM, c, keys, {}, [1, 17, 100]


def case_qwen2():
    c = hf.Qwen2Config(**COMMON, rms_norm_eps=1e-6, max_position_embeddings=512, use_sliding_window=False,
                       rope_parameters=rope(1e6), tie_word_embeddings=True)
    return "qwen2", hf.Qwen2ForCausalLM, c, {"qwen2.rope.freq_base": 1e6}, {}, [1, 17, 70]


def case_qwen3():
    c = hf.Qwen3Config(**dict(COMMON, num_attention_heads=4, hidden_size=32, intermediate_size=64),
                       head_dim=16, rms_norm_eps=1e-6, max_position_embeddings=512,
                       rope_parameters=rope(1e6), tie_word_embeddings=True, attention_bias=False)
    keys = {"qwen3.rope.freq_base": 1e6, "qwen3.attention.key_length": 16, "qwen3.attention.value_length": 16}
    return "qwen3", hf.Qwen3ForCausalLM, c, keys, {}, [1, 17, 70]


def qwen3moe(norm, **more):
    c = hf.Qwen3MoeConfig(**dict(COMMON, num_attention_heads=4, hidden_size=32, intermediate_size=48),
                          head_dim=16, rms_norm_eps=1e-6, max_position_embeddings=512,
                          moe_intermediate_size=24, num_experts=8, num_experts_per_tok=3, norm_topk_prob=norm,
                          rope_parameters=rope(1e6), decoder_sparse_step=1, **more)
    keys = {"qwen3moe.rope.freq_base": 1e6, "qwen3moe.attention.key_length": 16,
            "qwen3moe.attention.value_length": 16, "qwen3moe.expert_count": 8, "qwen3moe.expert_used_count": 3,
            "qwen3moe.expert_feed_forward_length": 24}
    return "qwen3moe", hf.Qwen3MoeForCausalLM, c, keys, {}, [1, 17, 24]


def case_qwen3moe():
    return qwen3moe(True, mlp_only_layers=[], tie_word_embeddings=False)


def case_qwen3moe_raw():
    """Weights that are not normalised, and a dense layer."""
    arch, cls, c, keys, extra, lengths = qwen3moe(False, mlp_only_layers=[1], tie_word_embeddings=True)
    return arch, cls, c, dict(keys, **{"qwen3moe.expert_weights_norm": False}), extra, lengths


def case_gemma3():
    c = hf.Gemma3TextConfig(**dict(COMMON, num_attention_heads=4, hidden_size=32, intermediate_size=32,
                                   num_hidden_layers=7), head_dim=16, query_pre_attn_scalar=16,
                            sliding_window=8, rms_norm_eps=1e-6, max_position_embeddings=512,
                            rope_parameters={"full_attention": rope(1e6, rope_type="linear", factor=8.0),
                                             "sliding_attention": rope(10000.0)}, tie_word_embeddings=True)
    keys = {"gemma3.rope.freq_base": 1e6, "gemma3.rope.scaling.type": "linear",
            "gemma3.rope.scaling.factor": 8.0, "gemma3.attention.key_length": 16,
            "gemma3.attention.value_length": 16, "gemma3.attention.sliding_window": 8}
    return "gemma3", hf.Gemma3ForCausalLM, c, keys, {}, [1, 17, 50]


def case_phi3():
    c = hf.Phi3Config(**COMMON, rms_norm_eps=1e-5, max_position_embeddings=64, sliding_window=24,
                      original_max_position_embeddings=64, rope_parameters=rope(10000.0),
                      tie_word_embeddings=False)
    keys = {"phi3.rope.dimension_count": 8, "phi3.attention.sliding_window": 24}
    return "phi3", hf.Phi3ForCausalLM, c, keys, {}, [1, 17, 60]


def case_phi3_long():
    """Longrope over a part of each head: 40 tokens by the short factors, 100 by the long ones."""
    short, long = [1.0, 1.1, 1.3], [1.0, 2.5, 6.0]
    c = hf.Phi3Config(**COMMON, rms_norm_eps=1e-5, max_position_embeddings=512, sliding_window=None,
                      original_max_position_embeddings=64, tie_word_embeddings=True,
                      rope_parameters=rope(10000.0, rope_type="longrope", short_factor=short,
                                           long_factor=long, partial_rotary_factor=0.75,
                                           original_max_position_embeddings=64))
    keys = {"phi3.rope.dimension_count": 6, "phi3.rope.scaling.type": "longrope",
            "phi3.rope.scaling.original_context_length": 64, "phi3.attention.sliding_window": 0,
            "phi3.rope.scaling.attn_factor": math.sqrt(1 + math.log(8) / math.log(64))}
    extra = {"rope_factors_short.weight": np.array(short, dtype=np.float32),
             "rope_factors_long.weight": np.array(long, dtype=np.float32)}
    return "phi3", hf.Phi3ForCausalLM, c, keys, extra, [1, 40, 100]


def hybrid(cls, cfg, arch, hv, **more):
    """Heads of attention and memory of unlike sizes; the last of four layers attends."""
    c = cfg(**dict(COMMON, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, **more), head_dim=24,
            rms_norm_eps=1e-6, max_position_embeddings=512, linear_num_key_heads=2, linear_num_value_heads=hv,
            linear_key_head_dim=12, linear_value_head_dim=16, linear_conv_kernel_dim=4,
            rope_parameters=rope(1e7, partial_rotary_factor=0.5))
    keys = {"attention.key_length": 24, "attention.value_length": 24, "rope.dimension_count": 12,
            "rope.freq_base": 1e7, "full_attention_interval": 4, "ssm.conv_kernel": 4, "ssm.state_size": 12,
            "ssm.group_count": 2, "ssm.time_step_rank": hv, "ssm.inner_size": hv * 16}
    if arch == "qwen35":
        keys["rope.dimension_sections"] = [2, 2, 2, 0]
    else:
        keys.update({"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 24,
                     "expert_shared_feed_forward_length": 40})
    return arch, cls, c, {f"{arch}.{k}": v for k, v in keys.items()}, {}, [1, 17, 130]


def case_qwen35():
    return hybrid(hf.Qwen3_5ForCausalLM, hf.Qwen3_5TextConfig, "qwen35", 6, tie_word_embeddings=False)


def case_qwen35_equal():
    """As many key heads as value heads, as in the small models."""
    return hybrid(hf.Qwen3_5ForCausalLM, hf.Qwen3_5TextConfig, "qwen35", 2, tie_word_embeddings=True)


def case_qwen35_mtp():
    """With a block that predicts the token after the next."""
    arch, cls, c, keys, extra, _ = hybrid(hf.Qwen3_5ForCausalLM, hf.Qwen3_5TextConfig, "qwen35", 4,
                                          tie_word_embeddings=False)
    keys.update({"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1})
    return arch, cls, c, keys, extra, [2, 17, 40]


class NextToken(torch.nn.Module):
    """The published MTP block: an attention layer of the model over the joined embedding and hidden state."""

    def __init__(self, cls, cfg):
        super().__init__()
        code = sys.modules[cls.__module__]
        norm = lambda: code.Qwen3_5RMSNorm(cfg.hidden_size, eps=cfg.rms_norm_eps)
        self.layer = code.Qwen3_5DecoderLayer(cfg, cfg.layer_types.index("full_attention"))
        self.enorm, self.hnorm, self.shared_head_norm = norm(), norm(), norm()
        self.eh_proj = torch.nn.Linear(2 * cfg.hidden_size, cfg.hidden_size, bias=False)

    def tensors(self, index):
        out = {}
        for name, p in self.named_parameters():
            n = (tensor_name(f"layers.{index}.{name[6:]}", "qwen35") if name.startswith("layer.")
                 else f"blk.{index}.nextn.{name}")
            out[n] = numbers(p) + np.float32(1 if n.endswith("norm.weight") else 0)
        return out

    def forward(self, model, tokens, hidden):
        """tokens[i] follows the position whose hidden state, after the final norm, is hidden[i]."""
        n = len(tokens)
        both = torch.cat([self.enorm(model.model.embed_tokens(tokens)), self.hnorm(hidden)], dim=-1)[None]
        at = torch.arange(1, n + 1)[None]
        mask = torch.full((n, n), float("-inf"), dtype=hidden.dtype).triu(1)[None, None]
        x = self.layer(self.eh_proj(both), model.model.rotary_emb(both, at[None].expand(3, 1, n)), attention_mask=mask)
        out = self.shared_head_norm(x[0])
        return model.lm_head(out), out


def next_tokens(model, block, tokens, guesses):
    """Logits of the block at every position, and of `guesses` further tokens that it draws from itself."""
    with torch.no_grad(), exact(model), exact(block):
        hidden = model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0][:-1]
        ids, rows = torch.tensor(tokens[1:]), []
        logits, out = block(model, ids, hidden)
        for _ in range(guesses):
            ids = torch.cat([ids, logits[-1:].argmax(-1)])
            hidden = torch.cat([hidden, out[-1:]])
            last, out = block(model, ids, hidden)
            rows.append(last[-1])
            logits = torch.cat([logits, last[-1:]])
    return numbers(logits[:len(tokens) - 1]), numbers(torch.stack(rows))


MOE = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, shared_expert_intermediate_size=40,
           experts_implementation="eager",
           tie_word_embeddings=False)


def case_qwen35moe():
    arch, cls, c, keys, extra, _ = hybrid(hf.Qwen3_5MoeForCausalLM, hf.Qwen3_5MoeTextConfig, "qwen35moe", 4, **MOE)
    return arch, cls, c, keys, extra, [1, 17, 24]


def case_qwen3next():
    arch, cls, c, keys, extra, _ = hybrid(hf.Qwen3NextForCausalLM, hf.Qwen3NextConfig, "qwen3next", 4,
                                          norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], **MOE)
    return arch, cls, c, keys, extra, [1, 17, 24]


def widen_experts(tensors, keys, ff):
    """Rows and columns of zeros, which change no answer: experts of `ff` rows."""
    for n, a in tensors.items():
        if n.endswith(("gate_exps.weight", "up_exps.weight")):
            tensors[n] = np.pad(a, ((0, 0), (0, ff - a.shape[1]), (0, 0)))
        elif n.endswith("down_exps.weight"):
            tensors[n] = np.pad(a, ((0, 0), (0, 0), (0, ff - a.shape[2])))
    for k in keys:
        if k.endswith(".expert_feed_forward_length"):
            keys[k] = ff


def make(name, case, out, seed):
    arch, cls, cfg, keys, extra, lengths = case()
    torch.manual_seed(seed)
    model = cls(cfg).float().eval()
    randomise(model, seed)
    tensors = dict(weights(model, arch, cfg), **extra)
    keys = dict(base_keys(arch, cfg), **keys)
    if name == "qwen3next":     # its shared expert is as wide as the others, that of qwen35moe is not
        widen_experts(tensors, keys, MOE["shared_expert_intermediate_size"])
    keys["oracle.count"] = len(lengths)
    block = NextToken(cls, cfg).float().eval() if name.endswith("_mtp") else None
    if block:
        randomise(block, seed + 2)
        tensors.update(block.tensors(cfg.num_hidden_layers))
    g = torch.Generator().manual_seed(seed + 1)
    for i, n in enumerate(lengths):
        tokens = torch.randint(0, cfg.vocab_size, (n,), generator=g).tolist()
        while any(s in cls.__name__ for s in ("Moe", "Next")) and not check_routes(model, tokens, cfg.num_experts_per_tok):
            tokens = torch.randint(0, cfg.vocab_size, (n,), generator=g).tolist()
        with exact(model) if arch in HYBRIDS else contextlib.nullcontext():
            raw, hidden = answers(model, tokens, n <= 17)
        logits, hidden = numbers(raw), [numbers(h) for h in hidden]
        limit = name == "phi3_long" and n <= 64
        keys[f"oracle.{i}.context"] = 64 if limit else cfg.max_position_embeddings
        tensors[f"oracle.{i}.tokens"] = np.array(tokens, dtype=np.int32)
        tensors[f"oracle.{i}.logits"] = logits
        if hidden:
            tensors[f"oracle.{i}.hidden"] = np.stack(hidden)
        if block:
            tensors[f"oracle.{i}.mtp"], tensors[f"oracle.{i}.mtp_next"] = next_tokens(model, block, tokens, 3)
        margin = np.sort(logits, axis=1)
        print(f"{name}.{i}: {n} tokens, std of logits {logits.std():.2f}, least margin "
              f"{(margin[:, -1] - margin[:, -2]).min():.4f}")
    write_gguf(os.path.join(out, name + ".gguf"), keys, tensors)


# Every case has the seed of its place here, so that adding one (at the end) leaves the others' files alone.
SEEDS = ["llama", "llama3", "llama_linear", "llama_yarn", "qwen2", "qwen3", "gemma3", "phi3", "phi3_long",
         "qwen3moe", "qwen3moe_raw", "qwen35", "qwen35_equal", "qwen3next", "qwen35moe",
         "qwen35_mtp"]


def main():
    cases = {f[5:]: v for f, v in globals().items() if f.startswith("case_")}
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "tests", "fixtures", "oracle")
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    for name, case in cases.items():
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            make(name, case, out, SEEDS.index(name) + 100)


if __name__ == "__main__":
    main()
