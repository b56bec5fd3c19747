#!/usr/bin/env python3
"""Asks clang's thread-safety analysis about every product source that mentions a mutex or includes a file that does: no
member that is marked as guarded is used without the mutex. scripts/sanitize.sh locks calls this.

  scripts/locks.py BUILD CLANG     BUILD: a configured build directory, whose generated headers exist
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MENTIONS = re.compile(r"\b(?:Mutex|MutexLock|CondVar)\b|\bABSL_GUARDED_BY\b")
KEPT = re.compile(r"-[ID].|-std=|-pthread$|-fopenmp$")
CHECKS = ["-fsyntax-only", "-Wno-everything", "-Werror=thread-safety", "-Werror=thread-safety-beta"]


def products(root):
    """Sources and headers, of tests none."""
    git = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    return {name for name in git.stdout.split("\n")
            if name.endswith((".h", ".cc", ".cu", ".cuh")) and not name.startswith("tests/") and (root / name).is_file()}


def reaching(texts, wanted):
    """The files that are in `wanted` or include one of those, directly or not."""
    includers = {}
    for name, text in texts.items():
        for included in re.findall(r'^\s*#include "([^"]+)"', text, re.M):
            includers.setdefault(included, []).append(name)
    reached, waiting = set(), list(wanted)
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += includers.get(name, [])
    return reached


def arguments(command):
    """What says where the headers are, and what is defined: of gcc's other flags and precompiled headers clang knows nothing."""
    words = iter(shlex.split(command))
    for word in words:
        if word == "-isystem":
            yield from (word, next(words))
        elif KEPT.match(word):
            yield word


def analyse(clang, entry):
    """Returns (what clang said where it refused, the files that the source consists of)."""
    with tempfile.NamedTemporaryFile(suffix=".d") as depends:
        run = subprocess.run([clang, *CHECKS, "-MD", "-MF", depends.name, *arguments(entry["command"]), entry["file"]],
                             cwd=entry["directory"], capture_output=True, text=True)
        files = depends.read().decode().replace("\\\n", " ").partition(":")[2].split()
    return run.stderr if run.returncode else "", {os.path.join(entry["directory"], f) for f in files}


def main():
    build, clang = Path(sys.argv[1]), sys.argv[2]
    root = Path(__file__).resolve().parents[1]
    texts = {name: (root / name).read_text(encoding="utf-8") for name in products(root)}
    mentions = {name for name, text in texts.items() if MENTIONS.search(text)}
    chosen = reaching(texts, mentions)
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        name = os.path.relpath(entry["file"], root)
        if name in chosen and name.endswith(".cc"):
            entries.setdefault(name, entry)
    refused, analysed = 0, set()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for said, files in pool.map(lambda entry: analyse(clang, entry), entries.values()):
            refused += bool(said)
            analysed |= {os.path.relpath(f, root) for f in files}
            print(said, end="", file=sys.stderr, flush=True)
    missed = sorted(mentions - analysed)
    for name in missed:
        print(f"locks: {name} mentions a mutex, and is part of no source that was analysed", file=sys.stderr)
    print(f"locks: {len(entries)} sources analysed, {refused} refused; {len(mentions)} files mention a mutex, "
          f"{len(missed)} of them not analysed")
    return 1 if refused or missed or not mentions else 0


if __name__ == "__main__":
    sys.exit(main())
