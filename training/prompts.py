#!/usr/bin/env python3
"""Makes the prompts that a drafter is trained on: OUT/{code,chat,math,prose}.txt, in which a line "%%" ends a prompt.
They come from free text of this machine (documentation, licences, headers, scripts; a Debian system has plenty) and
from the templates of templates.py; with --from FOLDER from the files of that folder instead. A prompt that shares
eight words in a row with one of the held-out prompts, or is one, is left out; the held-out files must be those of
their list held-out.sha256, where there is one. The same machine and seed give the same prompts."""
import argparse
import glob
import gzip
import hashlib
import os
import random
import re
import sys

import program
import templates

SETS = {"code": 14000, "chat": 12000, "math": 6000, "prose": 10000}
SHARED_WORDS, FILE_BYTES, PROMPT_BYTES = 8, 200_000, 900
PROSE_FILES = ["/usr/share/common-licenses/*", "/usr/share/doc/*/README*", "/usr/share/doc/*/NEWS*",
               "/usr/share/doc/*/*.txt*", "/usr/share/doc/*/copyright", "/usr/share/perl/*/pod/*.pod",
               "/usr/share/perl/*/*.pod", "/usr/share/man/man[1-8]/*.gz"]
CODE_FILES = {"py": ["/usr/lib/python3*/**/*.py"], "c": ["/usr/include/**/*.h", "/usr/share/doc/**/*.c"],
              "sh": ["/usr/bin/*", "/usr/sbin/*", "/etc/init.d/*", "/usr/share/doc/**/*.sh"],
              "pl": ["/usr/share/perl/**/*.pm"], "js": ["/usr/share/**/*.js"]}
# Where a piece of code begins: at a function, or what its comment says.
CODE_STARTS = {"py": r"^(?: *)def \w+\(.*|^class \w+.*", "c": r"^/\*.*|^(?:static |extern )?[a-z]\w+ .*\(.*|^struct \w+",
               "sh": r"^#!.*|^# \w+.*|^\w+ *\(\).*", "pl": r"^sub \w+.*", "js": r"^ *(?:async )?function \w*\(.*|^ *//.*"}


def words(text):
    return re.findall(r"\w+", text.lower())


def read_prompts(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return [p.strip("\n") for p in f.read().split("\n%%\n") if p.strip()]


def held_out(folder):
    """Runs of words that no prompt may share, and the short prompts themselves."""
    listed = os.path.join(os.path.dirname(folder.rstrip("/")), os.path.basename(folder.rstrip("/")) + ".sha256")
    if os.path.exists(listed):
        for line in open(listed, encoding="utf-8"):
            want, name = line.split()
            path = os.path.join(os.path.dirname(listed), name)
            if hashlib.sha256(open(path, "rb").read()).hexdigest() != want:
                sys.exit(f"prompts.py: {path} is not the file of {listed}: its hash differs")
    runs, whole = set(), set()
    for path in glob.glob(os.path.join(folder, "*.txt")):
        for prompt in read_prompts(path):
            w = words(prompt)
            whole.add(tuple(w))
            runs.update(tuple(w[i:i + SHARED_WORDS]) for i in range(len(w) - SHARED_WORDS + 1))
    if not whole:
        sys.exit(f"prompts.py: {folder} has no prompts: nothing to keep apart; give --held-out")
    return runs, whole


def is_held_out(prompt, forbidden):
    runs, whole = forbidden
    w = words(prompt)
    return tuple(w) in whole or any(tuple(w[i:i + SHARED_WORDS]) in runs for i in range(len(w) - SHARED_WORDS + 1))


def texts_of(patterns, rng, most):
    """Contents of some of the files, in random order."""
    paths = sorted({p for pattern in patterns for p in glob.glob(pattern, recursive=True) if os.path.isfile(p)})
    rng.shuffle(paths)
    for path in paths[:most]:
        try:
            with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
                raw = f.read(FILE_BYTES)
        except (OSError, EOFError):
            continue
        if b"\0" not in raw[:4000]:
            yield raw.decode("utf-8", "ignore")


def prose_of(text, rng):
    """Beginnings of paragraphs, cut after a few words or within them."""
    text = re.sub(r"(?m)^[.'].*$", "", text).replace("\\-", "-").replace("\\&", "")
    text = re.sub(r"\\f[A-Z]|\\[a-z]\w*|[A-Z]<([^<>]*)>", r"\1", text)
    for paragraph in re.split(r"\n\s*\n", text):
        w = paragraph.split()
        plain = sum(x.strip(".,;:()\"'").isalpha() for x in w)
        if len(w) >= 30 and plain > 0.8 * len(w) and w[0][:1].isalpha():
            yield " ".join(w[:rng.randint(6, min(60, len(w) - 10))])


def code_of(text, rng, start):
    """A function or comment, cut after some of its lines."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if re.match(start, line) and len(line) < 160 and rng.random() < 0.1:
            part = lines[i:i + rng.randint(1, 12)]
            cut = "\n".join(x.rstrip() for x in part).strip("\n")
            if len(cut) > 15:
                yield cut + "\n" * rng.randint(0, 1)


def from_machine(name, rng, most):
    """Prompts of free text, at most two of a file."""
    out = []
    kinds = CODE_FILES if name == "code" else {"": PROSE_FILES}
    for kind, patterns in kinds.items():
        got = []
        for text in texts_of(patterns, rng, most):
            found = list(code_of(text, rng, CODE_STARTS[kind]) if kind else prose_of(text, rng))
            got += rng.sample(found, min(2, len(found)))
            if len(got) >= most // len(kinds):
                break
        out += got
    return out


def make(name, rng):
    """Half from free text, where the set has any, the rest from templates."""
    most = SETS[name]
    free = from_machine(name, rng, most // 2) if name in ("code", "prose") else []
    return free + [templates.make(name, rng) for _ in range(most - len(free))]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out", help="folder to be made")
    p.add_argument("--held-out", default="bench/prompts/held-out", help="folder of the prompts to be kept apart")
    p.add_argument("--from", dest="source", help="folder whose prompts are taken instead of made")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    forbidden = held_out(a.held_out)
    if a.source and not any(os.path.exists(os.path.join(a.source, f"{name}.txt")) for name in SETS):
        sys.exit(f"prompts.py: {a.source} has none of " + ", ".join(f"{name}.txt" for name in SETS))
    os.makedirs(a.out, exist_ok=True)
    for name in SETS:
        rng, path = random.Random(f"{a.seed} {name}"), os.path.join(a.source or "", f"{name}.txt")
        out = os.path.join(a.out, f"{name}.txt")
        if a.source and not os.path.exists(path):
            if os.path.exists(out):             # of other prompts before
                os.remove(out)
            continue
        made = read_prompts(path) if a.source else make(name, rng)
        rng.shuffle(made)
        kept, seen = [], set()
        for prompt in made:
            key = tuple(words(prompt))
            if key and key not in seen and len(prompt) <= PROMPT_BYTES and "\n%%" not in prompt:
                seen.add(key)
                kept.append(prompt)
        apart = [prompt for prompt in kept if not is_held_out(prompt, forbidden)]
        program.write(out, ((prompt + "\n%%\n").encode() for prompt in apart))
        print(f"prompts: {name}: {len(apart)}; {len(kept) - len(apart)} left out as too like a held-out one",
              file=sys.stderr)


if __name__ == "__main__":
    program.run(main)
