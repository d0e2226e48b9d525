#!/usr/bin/env python3
"""Makes tests/fixtures/greedy.txt: greedy continuations of the two real models by HF transformers.

The GGUF's weights are dequantised to f32, so that only the engine's own rounding differs. A line:
    MODEL_FILE | prompt ids | continuation ids | margin of each continuation id over the second best
Needs torch, transformers and gguf. Usage: make-greedy-fixtures.py MODELS_DIR [OUT_FILE]
"""
import os
import sys

import numpy as np
import torch
import transformers as hf
from gguf import GGUFReader, dequantize

N = 24
PROMPTS = {
    "smollm2-135m-instruct-q4_1.gguf": [
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
        "def fibonacci(n):\n",
        "The three primary colours are",
    ],
    "gemma-3-270m-q4_k_m.gguf": [
        "<bos>The capital of France is",
        "<bos>import numpy as np\n\ndef softmax(x):\n",
        "<bos>Once upon a time, there was a little",
    ],
}
NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class File:
    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.arch = self.key("general.architecture")

    def key(self, name, absent=None):
        field = self.reader.fields.get(name.replace("ARCH", getattr(self, "arch", "")))
        return field.contents() if field else absent


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def state(f):
    gemma = f.arch == "gemma3"
    top = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    post = {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm"} if gemma else {"ffn_norm": "post_attention_layernorm"}
    out = {}
    for t in f.reader.tensors:
        w = np.array(dequantize(t.data, t.tensor_type), dtype=np.float32)
        stem = t.name.removesuffix(".weight")
        if stem in top:
            name = top[stem]
        else:
            _, layer, part = stem.split(".", 2)
            name = f"model.layers.{layer}.{dict(NAMES, **post)[part]}"
        if f.arch == "llama" and part_of(stem) in ("attn_q", "attn_k"):
            heads = "ARCH.attention.head_count" + ("_kv" if part_of(stem) == "attn_k" else "")
            w = unpermute(w, f.key(heads))
        if gemma and stem.endswith("norm"):
            w = w - np.float32(1)
        out[name + ".weight"] = torch.from_numpy(np.ascontiguousarray(w))
    return out


def part_of(stem):
    return stem.rsplit(".", 1)[-1]


def model_of(f):
    common = dict(vocab_size=len(f.key("tokenizer.ggml.tokens")), hidden_size=f.key("ARCH.embedding_length"),
                  intermediate_size=f.key("ARCH.feed_forward_length"),
                  num_hidden_layers=f.key("ARCH.block_count"),
                  num_attention_heads=f.key("ARCH.attention.head_count"),
                  num_key_value_heads=f.key("ARCH.attention.head_count_kv"),
                  rms_norm_eps=f.key("ARCH.attention.layer_norm_rms_epsilon"),
                  max_position_embeddings=f.key("ARCH.context_length"), tie_word_embeddings=True,
                  attn_implementation="eager")
    base = f.key("ARCH.rope.freq_base")
    if f.arch == "llama":
        cfg = hf.LlamaConfig(**common, rope_parameters={"rope_type": "default", "rope_theta": base})
        model = hf.LlamaForCausalLM(cfg)
    else:
        hd = f.key("ARCH.attention.key_length")
        cfg = hf.Gemma3TextConfig(
            **common, head_dim=hd, query_pre_attn_scalar=hd, sliding_window=f.key("ARCH.attention.sliding_window"),
            rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": base},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
        model = hf.Gemma3ForCausalLM(cfg)
    missing, extra = model.load_state_dict(state(f), strict=False)
    assert not extra and set(missing) <= {"lm_head.weight"}, (missing, extra)
    model.tie_weights()
    return model.float().eval()


def ids_of(f, text):
    """Prompts are words of the vocabulary, longest match first: the test compares models, not tokenizers."""
    tokens = f.key("tokenizer.ggml.tokens")
    if f.key("tokenizer.ggml.model") == "gpt2":
        text = text.replace(" ", "\u0120").replace("\n", "\u010a")
    else:
        text = text.replace(" ", "\u2581")
    index = {t: i for i, t in reversed(list(enumerate(tokens)))}
    ids = []
    while text:
        n = next(n for n in range(min(len(text), 32), 0, -1) if text[:n] in index)
        ids.append(index[text[:n]])
        text = text[n:]
    return ids


def main():
    out = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "..", "tests",
                                                             "fixtures", "greedy.txt")
    torch.set_num_threads(1)
    lines = []
    for name, prompts in PROMPTS.items():
        f = File(os.path.join(sys.argv[1], name))
        model = model_of(f)
        tokens = f.key("tokenizer.ggml.tokens")
        for text in prompts:
            prompt = ids_of(f, text)
            made, margins, past = [], [], None
            feed = prompt
            with torch.no_grad():
                for _ in range(N):
                    r = model(torch.tensor([feed]), past_key_values=past, use_cache=True)
                    past = r.past_key_values
                    best = torch.topk(r.logits[0, -1], 2)
                    made.append(int(best.indices[0]))
                    margins.append(float(best.values[0] - best.values[1]))
                    feed = made[-1:]
            print(repr(text), "".join(tokens[t] for t in made), f"{min(margins):.3f}")
            lines.append(" | ".join([name, " ".join(map(str, prompt)), " ".join(map(str, made)),
                                     " ".join(f"{m:.4f}" for m in margins)]))
    with open(out, "w") as o:
        o.write("\n".join(lines) + "\n")


main()
