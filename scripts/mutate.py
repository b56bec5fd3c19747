#!/usr/bin/env python3
"""Plants bugs, one at a time, and looks whether the tests notice.

  scripts/mutate.py [WORD...] [--list | --names TESTS]

The bugs are data: tests/mutations/*.toml, one table each:

  [[bug]]
  file = "train/trainer/learning_rate.cc"
  line = "if (step <= warmup) return peak * double(step) / double(warmup);"   text that occurs once in the file
  with = "if (step < warmup) return peak * double(step) / double(warmup);"    what it becomes
  tests = ["train_step_test:Schedule.*"]                                      those that must notice: program:gtest filter
  harm = "The last step of the warm-up has another rate."

All of it happens in a copy, build-mutate/, which has a build of its own; the first run builds it. Every test passes there
without a bug before one is planted. With words: only bugs whose file, text or tests hold one of them. Prints for each bug
whether it was caught (one of its tests fails, crashes or hangs), survived or did not build, and seconds; exit status 1 if one
was not caught. --names only looks whether each filter names a test of the programs in the directory TESTS, as build/tests.
"""
import argparse
import fnmatch
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build-mutate"
TEST_SECONDS = 300  # A test that takes longer has noticed: it hangs.


@dataclass(frozen=True)
class Bug:
    file: str
    line: str
    replacement: str
    tests: tuple
    harm: str

    @property
    def title(self):
        shown = self.replacement.strip() or f"without {self.line.strip()}"
        return f"{self.file}: {shown.splitlines()[0].strip()[:90]}"


def read_bugs(root):
    bugs = []
    for path in sorted((root / "tests/mutations").glob("*.toml")):
        for bug in tomllib.loads(path.read_text())["bug"]:
            bugs.append(Bug(bug["file"], bug["line"], bug["with"], tuple(bug["tests"]), bug["harm"]))
    return bugs


def copy_tree():
    """Brings the copy up to date. A file that is as it was keeps its time, so that it is not built again."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"],
                            capture_output=True, text=True, check=True).stdout
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    COPY.mkdir(exist_ok=True)
    for old in COPY.rglob("*"):
        if old.is_file() and "build" != old.relative_to(COPY).parts[0] and str(old.relative_to(COPY)) not in names:
            old.unlink()
    for name in names:
        target = COPY / name
        if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)  # With a new time.


def build(targets):
    """What the compiler says against it; empty: it is built."""
    environment = {**os.environ, "CCACHE_BASEDIR": str(COPY)}
    if not (COPY / "build/build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=COPY, env=environment, check=True, stdout=subprocess.DEVNULL)
    run = subprocess.run(["ninja", "-C", "build", *sorted(targets)], cwd=COPY, env=environment, capture_output=True, text=True)
    return "" if run.returncode == 0 else (run.stdout + run.stderr)[-3000:]


def passes(test):
    """Whether the test passes; ValueError where its filter names none."""
    program, _, pattern = test.partition(":")
    environment = {**os.environ, "TRAINYARD_BIN": str(COPY / "build/bin"), "TRAINYARD_SOURCE": str(COPY)}
    for number in ("TEST_TOTAL_SHARDS", "TEST_SHARD_INDEX"):
        environment.pop(number, None)
    if "/Layouts." in pattern:  # A filter may name one that a seed seldom chooses.
        environment["TRAINYARD_LAYOUTS"] = "all"
    try:
        run = subprocess.run([COPY / "build/tests" / program, f"--gtest_filter={pattern or '*'}"], cwd=COPY / "build",
                             env=environment, capture_output=True, text=True, errors="replace", timeout=TEST_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    if "Running 0 tests" in run.stdout:
        raise ValueError(f"{test}: the filter names no test")
    return run.returncode == 0


def unnamed(bugs, programs):
    """The filters of `bugs` that name no test of the built programs."""
    environment = {**os.environ, "TRAINYARD_LAYOUTS": "all", "TRAINYARD_BIN": str(programs.parent / "bin"),
                   "TRAINYARD_SOURCE": str(ROOT)}
    known = {}
    for test in sorted({test for bug in bugs for test in bug.tests}):
        program, _, patterns = test.partition(":")
        if program not in known:
            listed = subprocess.run([programs / program, "--gtest_list_tests"], env=environment, capture_output=True, text=True,
                                    check=True).stdout
            known[program], suite = [], ""
            for line in listed.splitlines():
                name = line.split("#")[0].strip()
                if line.startswith("  "):
                    known[program].append(suite + name)
                elif name.endswith("."):
                    suite = name
        for pattern in patterns.split(":") if patterns else ():
            if not any(fnmatch.fnmatchcase(name, pattern) for name in known[program]):
                yield f"{program}:{pattern}"


def program_of(test):
    return test.partition(":")[0]


def plant(bug):
    """The bug's outcome: "caught", "survived" or "does not build"."""
    path = COPY / bug.file
    good = path.read_text()
    assert good.count(bug.line) == 1, f"{bug.file}: wanted once, found {good.count(bug.line)} times: {bug.line}"
    path.write_text(good.replace(bug.line, bug.replacement))
    try:
        if errors := build({program_of(test) for test in bug.tests}):
            print(errors)
            return "does not build"
        return "survived" if all(passes(test) for test in bug.tests) else "caught"
    finally:
        path.write_text(good)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--list", action="store_true", help="print the bugs and plant none")
    parser.add_argument("--names", type=Path, metavar="TESTS", help="a directory of built tests: check the filters and plant none")
    arguments = parser.parse_args()
    bugs = [bug for bug in read_bugs(ROOT)
            if not arguments.words or any(word in " ".join((bug.file, bug.replacement, *bug.tests)) for word in arguments.words)]
    if not bugs:
        sys.exit(f"mutate: no bug has one of {arguments.words}")
    if arguments.list:
        for bug in bugs:
            print(f"{bug.title}\n    {bug.harm}")
        return
    if arguments.names:
        if missing := list(unnamed(bugs, arguments.names)):
            sys.exit("mutate: no test has these names:\n" + "\n".join(missing))
        return
    copy_tree()
    tests = sorted({test for bug in bugs for test in bug.tests})
    begin = time.monotonic()
    if errors := build({program_of(test) for test in tests}):
        sys.exit(f"mutate: the tree does not build\n{errors}")
    if failing := [test for test in tests if not passes(test)]:
        sys.exit("mutate: these fail without a bug: " + ", ".join(failing))
    print(f"{len(tests)} tests pass without a bug, after {time.monotonic() - begin:.0f} s", flush=True)
    outcomes = Counter()
    for bug in bugs:
        begin = time.monotonic()
        outcome = plant(bug)
        outcomes[outcome] += 1
        print(f"{outcome:<14} {time.monotonic() - begin:5.0f} s  {bug.title}", flush=True)
        if outcome == "survived":
            print(f"    {bug.harm}\n    passed: {', '.join(bug.tests)}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) + f" of {len(bugs)}")
    sys.exit(0 if outcomes["caught"] == len(bugs) else 1)


if __name__ == "__main__":
    main()
