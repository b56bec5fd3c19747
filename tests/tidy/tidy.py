#!/usr/bin/env python3
"""Checks the tree against tests/tidy/rules.py and .clang-format. Prints every finding; exit status 1 if there is one.

  tests/tidy/tidy.py [ROOT]
"""
import re
import shutil
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import rules
from source import Source

SKIPPED = re.compile(r"^(build[^/]*|\.git|\.trainyard|runs)(/|$)|__pycache__|\.(png|bin|idx|so|gz)$")


class Tree:
    def __init__(self, root, paths=None):
        self.root = Path(root)
        self._paths = paths

    @cached_property
    def paths(self):
        """Files that git tracks or would track; all files where there is no git."""
        if self._paths is not None:
            return [Path(p) for p in self._paths]
        git = subprocess.run(["git", "-C", str(self.root), "ls-files", "-co", "--exclude-standard"],
                             capture_output=True, text=True)
        names = git.stdout.split("\n") if git.returncode == 0 else [
            str(p.relative_to(self.root)) for p in self.root.rglob("*")]
        return sorted(Path(n) for n in set(names) if n and not SKIPPED.search(n) and (self.root / n).is_file())

    @cached_property
    def sources(self):
        return [Source(self.root, p) for p in self.paths]

    @cached_property
    def code(self):
        return [s for s in self.sources if s.is_code]

    def match(self, pattern):
        return [s for s in self.sources if re.search(pattern, str(s.path))]

    def text(self, name):
        path = self.root / name
        return path.read_text(encoding="utf-8") if path.exists() else ""


def format_findings(tree):
    tool = shutil.which("clang-format")
    if tool is None:
        yield "clang-format is not installed (scripts/install_test_tools.sh installs it)"
        return
    files = [str(s.path) for s in tree.code]
    for i in range(0, len(files), 50):
        run = subprocess.run([tool, "--dry-run", "--Werror", *files[i:i + 50]], cwd=tree.root, capture_output=True, text=True)
        yield from sorted({m.group(1) + ": not formatted; run clang-format -i" for m in
                           re.finditer(r"^([^\s:]+):\d+:\d+: error", run.stderr, re.M)})


def main():
    tree = Tree(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    findings = [f"{rule.__name__}: {f}" for rule in rules.ALL for f in rule(tree)]
    findings += [f"clang_format: {f}" for f in format_findings(tree)]
    print("\n".join(findings))
    print(f"{len(tree.code)} code files, {len(rules.ALL) + 1} rules, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
