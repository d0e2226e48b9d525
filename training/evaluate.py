#!/usr/bin/env python3
"""How many guessed tokens a text would accept, from the text alone: a greedy text is what the model says whatever was
guessed, so that a walk over it, block by block, commits what a run of luce would. As a program it judges the drafter
of a training's folder by all of its texts (or, with --judged, by those that were kept from it)."""
import argparse
import json
import os

import torch

import program
from data import Data, blocks_of, rows_of
from network import Drafter


@torch.no_grad()
def accepted(drafter, data, texts, to_draft, device, at_once=256):
    """Walks the answers. Gives tokens per step, and for each depth how often a guess was right where all before it
    were."""
    block = drafter.c["block"]
    steps = tokens = 0
    tried, right = torch.zeros(block - 1), torch.zeros(block - 1)
    for t in texts.tolist():
        features, ids, prompt, length = data.batch(torch.tensor([t]), device)
        anchors = torch.arange(int(prompt), int(length) - 1, device=device)[None]
        hits = []
        for part in anchors.split(at_once, 1):
            seeds, want = blocks_of(ids, part, length, block, to_draft)
            hits.append((drafter.logits(drafter(features, seeds, part)).argmax(-1) == want)[0].cpu())
        kept = torch.cat(hits).int().cumprod(1)
        at = 0
        while at < len(kept):
            m, room = int(kept[at].sum()), min(block - 1, len(kept) - at)
            tried[:min(m + 1, room)] += 1
            right[:m] += 1
            steps, tokens, at = steps + 1, tokens + min(m + 1, len(kept) - at), at + m + 1
    return tokens / max(steps, 1), [float(r / t) if t else 0.0 for r, t in zip(right, tried)]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("folder", help="with data.safetensors and checkpoint.pt")
    p.add_argument("--judged", action="store_true", help="only texts that the training did not see")
    a = p.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = Data(os.path.join(a.folder, "data.safetensors"))
    data.to_device(device)
    kept = torch.load(os.path.join(a.folder, "checkpoint.pt"), map_location="cpu", weights_only=True)
    ids, to_draft = kept["ids"], rows_of(kept["ids"], data.config["vocab"])
    drafter = Drafter(kept["config"], data.embed, data.head[ids])
    drafter.load_state_dict(kept["state"])
    texts = data.split()[1] if a.judged else data.usable()
    length, right = accepted(drafter.to(device).eval(), data, texts, to_draft.to(device), device)
    print(json.dumps({"texts": len(texts), "tokens_per_step": length, "right_by_depth": right}))


if __name__ == "__main__":
    program.run(main)
