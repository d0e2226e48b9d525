#!/usr/bin/env python3
"""Trains a DFlash drafter on data.safetensors of a folder; training/README.md says how. luce train-drafter runs it.
Leaves checkpoint.pt (all that --resume needs) and drafter-f32.gguf (the network of the best evaluation)."""
import argparse
import io
import math
import os
import sys
import time

try:
    import torch
except ImportError:
    sys.exit(3)

import program
from data import Data, blocks_of, draft_vocabulary, rows_of
from evaluate import accepted
from export import export
from network import Drafter, depth_weights, gamma_of, loss_of

BLOCK, WINDOW, DRAFT_LAYERS, DRAFT_VOCABULARY = 8, 512, 3, 16384
LEARNING_RATE, WARM_UP, LAST_RATE, SEED = 6e-4, 0.04, 0.1, 1
# A step's texts and blocks of each; steps; steps between evaluations and texts of one.
ON_CUDA = dict(texts=64, blocks=64, steps=8000, every=800, judged=160)
ON_CPU = dict(texts=8, blocks=16, steps=1500, every=100, judged=24)


def say(*words):
    print(*words, file=sys.stderr, flush=True)


class Training:
    def __init__(self, a):
        self.a, self.began = a, time.monotonic()
        torch.manual_seed(SEED)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.size = dict(ON_CUDA if self.device.type == "cuda" else ON_CPU)
        self.size["steps"] = a.steps or self.size["steps"]
        self.data = Data(os.path.join(a.folder, "data.safetensors"))
        self.learn, self.judge = self.data.split()
        if len(self.learn) == 0:
            sys.exit("train.py: data.safetensors has no answers to learn from; give more prompts")
        self.data.to_device(self.device)
        self.config = dict(self.data.config, block=BLOCK, window=WINDOW, draft_layers=DRAFT_LAYERS)
        self.ids = draft_vocabulary(self.data, self.learn, DRAFT_VOCABULARY)
        self.to_draft = rows_of(self.ids, self.config["vocab"]).to(self.device)
        self.net = Drafter(self.config, self.data.embed, self.data.head[self.ids]).to(self.device)
        with torch.no_grad():               # the head's own scale
            self.net.norm.weight.copy_(self.data.norm)
        self.optimiser = torch.optim.AdamW(self.net.parameters(), LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
        self.step, self.before, self.best, self.state = 0, 0.0, 0.0, None
        self.generator = torch.Generator().manual_seed(SEED)
        self.path = os.path.join(a.folder, "checkpoint.pt")

    def seconds(self):
        return self.before + time.monotonic() - self.began

    def share(self):
        """Of the training that is done: by steps, or by time where that ends it sooner."""
        by_time = self.seconds() / (60 * self.a.minutes) if self.a.minutes else 0
        return min(1.0, max(self.step / self.size["steps"], by_time))

    def rate(self):
        p = self.share()
        warm = min(1.0, max((self.step + 1) / self.size["steps"], p) / WARM_UP)
        return LEARNING_RATE * warm * (LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * p)) / 2)

    def batches(self):
        """Texts of like length together; an epoch after the other."""
        n = self.size["texts"]
        while True:
            order = self.learn[torch.randperm(len(self.learn), generator=self.generator)]
            made = []
            for pool in order.split(16 * n):
                made += pool[self.data.length[pool].argsort()].split(n)
            for i in torch.randperm(len(made), generator=self.generator).tolist():
                yield made[i]

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def anchors(self, prompt, length, positions):
        """Positions [n, blocks] of answer tokens with one after them, drawn without repetition; where an answer has
        too few, the rest are not used."""
        at = torch.arange(positions, device=prompt.device)
        fits = (at >= prompt[:, None]) & (at < length[:, None] - 1)
        drawn = torch.rand(fits.shape, device=prompt.device).masked_fill(~fits, -1)
        score, found = drawn.topk(min(self.size["blocks"], positions), 1)
        return torch.where(score >= 0, found, prompt[:, None]), score >= 0

    def learn_from(self, texts):
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate()
        with self.autocast():
            features, tokens, prompt, length = self.data.batch(texts, self.device)
            anchors, used = self.anchors(prompt, length, features.shape[1])
            seeds, want = blocks_of(tokens, anchors, length, BLOCK, self.to_draft)
            want = want.masked_fill(~used[..., None], -1)
            weights = depth_weights(BLOCK, gamma_of(BLOCK), self.device).expand(want.shape)
            loss = loss_of(self.net, self.net(features, seeds, anchors), want, weights)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimiser.step()
        self.step += 1
        return loss.detach()

    def evaluate(self, loss):
        self.net.eval()
        with self.autocast():
            length, right = accepted(self.net, self.data, self.judge[:self.size["judged"]], self.to_draft, self.device)
        self.net.train()
        if length > self.best or self.state is None:
            self.best = length
            self.state = {k: v.detach().cpu().clone() for k, v in self.net.state_dict().items()}
        say(f"step {self.step} of {self.size['steps']}, {self.seconds():.0f} s: loss {loss:.3f}, tokens per step "
            f"{length:.3f} (best {self.best:.3f}), right by depth " + " ".join(f"{r:.2f}" for r in right))
        self.save()

    def save(self):
        """By way of memory: where a file fails it, torch.save says something of its own."""
        made = io.BytesIO()
        torch.save(dict(net=self.net.state_dict(), optimiser=self.optimiser.state_dict(), step=self.step,
                        seconds=self.seconds(), best=self.best, state=self.state, ids=self.ids, config=self.config), made)
        program.write(self.path + ".new", [made.getbuffer()])
        os.replace(self.path + ".new", self.path)

    def resume(self):
        if not os.path.exists(self.path):
            return
        kept = torch.load(self.path, map_location="cpu", weights_only=True)
        if not torch.equal(kept["ids"], self.ids):
            sys.exit(f"train.py: {self.path} belongs to other data; without --resume the training starts anew")
        self.net.load_state_dict(kept["net"])
        self.optimiser.load_state_dict(kept["optimiser"])
        self.step, self.before, self.best, self.state = kept["step"], kept["seconds"], kept["best"], kept["state"]
        self.generator.manual_seed(SEED + self.step)
        torch.manual_seed(SEED + self.step)
        say(f"resuming at step {self.step}, best {self.best:.3f}")

    def run(self):
        n = sum(p.numel() for p in self.net.parameters())
        say(f"training on {self.device}: {len(self.learn)} texts, {int(self.data.length.sum())} tokens, judged by "
            f"{len(self.judge)}; {n / 1e6:.1f} M parameters, {len(self.ids)} tokens in the draft vocabulary")
        batches, losses, evaluated = self.batches(), [], -1
        while self.share() < 1:
            losses.append(self.learn_from(next(batches)))
            if self.step % self.size["every"] == 0:
                self.evaluate(float(torch.stack(losses).mean()))
                losses, evaluated = [], self.step
        if evaluated != self.step and losses:
            self.evaluate(float(torch.stack(losses).mean()))
        if self.state is None:
            self.evaluate(math.nan)
        export(os.path.join(self.a.folder, "drafter-f32.gguf"), self.config, self.state, self.data.head[self.ids],
               self.ids)
        say(f"trained for {self.step} steps in {self.seconds():.0f} s; best: {self.best:.3f} tokens per step")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("folder", nargs="?", help="with data.safetensors")
    p.add_argument("--check", action="store_true", help="only say whether PyTorch is there (exit code 3: no)")
    p.add_argument("--steps", type=int, default=0, help="0: the recipe's number")
    p.add_argument("--minutes", type=float, default=0, help="end sooner; 0: when the steps are done")
    p.add_argument("--resume", action="store_true", help="go on with checkpoint.pt")
    a = p.parse_args()
    if a.check:
        return
    if not a.folder:
        p.error("give the folder of data.safetensors")
    training = Training(a)
    if a.resume:
        training.resume()
    try:
        training.run()
    except KeyboardInterrupt:
        training.save()
        sys.exit(130)


program.run(main)
