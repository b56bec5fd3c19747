#!/usr/bin/env python3
"""Says what it costs to build what the quickstart needs, and everything, and where that goes.

  scripts/minutes.py [BUILD] [--check | --record]     BUILD: a build directory, build/ where nothing else is said

Prints for both, by folder and for the dearest sources, two figures:

  work      processor seconds, estimated from what the compiler reads and writes: the bytes of all files that a source
            includes and its precompiled header lacks, the bytes of that header, and the machine code of its object. The
            figure does not depend on the machine, nor on what the compiler's cache had, since it comes from ninja's
            records and from the objects. FACTORS says what a megabyte costs.
  ninja     seconds of ninja's log. What the cache had, and what other programs did meanwhile, makes them smaller or larger.

--record writes the work into tests/cmake/minutes.json. --check fails where it differs from that by more than a tenth; where
the build is not whole, or of another kind (sanitizers, sources apart), it says "skipped". What only CUDA's toolkit brings is
left out, so that the figure is that of a machine without it.

The estimate does not see what templates cost that end in little code, nor how long a test runs.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests/cmake/minutes.json"
QUICKSTART = ["trainyard", "trainyard-controller", "trainyard-worker", "trainyard-trainer"]
GROWTH = 0.1

# Processor seconds a megabyte, fitted by least squares to those of 109 compilations on a Zen 4 (2026-11-29): R^2 is 0.95.
# The last one is of two sources of tests, on a busy one (2026-11-30): 7.0 and 7.4.
FACTORS = {"read": 0.31, "precompiled header loaded": 0.0056, "precompiled header written": 0.035, "machine code": 33.5,
           "machine code without optimisation": 7.2}


def ninja(build, *arguments):
    return subprocess.run(["ninja", "-C", build, *arguments], check=True, text=True, stdout=subprocess.PIPE).stdout


def dependencies(build):
    """{object or precompiled header: the files that it was made of}, by ninja's records."""
    made_of, current = {}, None
    for line in ninja(build, "-t", "deps").splitlines():
        if line.startswith("    "):
            current.append(os.path.normpath(build / line.strip()))
        elif found := re.match(r"(\S+): #deps \d+", line):
            current = made_of[found[1]] = []
    return made_of


def code_bytes(build, objects):
    """{object: bytes of machine code and constants}"""
    lines = subprocess.run(["size", *objects], cwd=build, check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    return {words[5]: int(words[0]) for words in (line.split() for line in lines[1:])}


def seconds_of_log(build):
    """{output: seconds of its last build}"""
    seconds, log = {}, build / ".ninja_log"
    for line in log.read_text().splitlines()[1:] if log.exists() else ():
        start, end, _, output, _ = line.split("\t")
        seconds[output] = (int(end) - int(start)) / 1000
    return seconds


def unoptimised(build):
    """The objects that are compiled with -O0."""
    commands = [entry["command"] for entry in json.loads((build / "compile_commands.json").read_text())]
    return {re.search(r" -o (\S+)", command)[1] for command in commands if " -O0 " in command}


def headers(build):
    """{object: the precompiled header that is loaded for it}"""
    loaded = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        header = re.search(r" -include (\S+/cmake_pch\.hxx) ", entry["command"])
        if header and "-x c++-header" not in entry["command"]:
            loaded[re.search(r" -o (\S+)", entry["command"])[1]] = os.path.relpath(header[1], build) + ".gch"
    return loaded


class Build:
    def __init__(self, directory):
        self.directory = Path(directory).resolve()
        self.made_of = dependencies(self.directory)
        self.header = headers(self.directory)
        self.unoptimised = unoptimised(self.directory)
        self.sizes = {}
        self.log = seconds_of_log(self.directory)

    def cache(self, name):
        """The value of a variable of CMake's."""
        found = re.search(rf"^{name}:\w+=(.*)$", (self.directory / "CMakeCache.txt").read_text(), re.MULTILINE)
        return found[1] if found else ""

    def size(self, path):
        if path not in self.sizes:
            self.sizes[path] = os.path.getsize(path) if os.path.exists(path) else 0
        return self.sizes[path]

    def compiled(self, *targets):
        """The objects and precompiled headers of targets, those apart that only a machine with CUDA's toolkit has."""
        inputs = ninja(self.directory, "-t", "inputs", *targets).split()
        outputs = {name for name in inputs if name.endswith((".o", ".gch"))}
        return sorted(name for name in outputs if not self.needs_cuda(name))

    def needs_cuda(self, name):
        return name.endswith(".cu.o") and "emulat" not in name or any(
            re.search(r"/(cuda|cudnn)[^/]*/(targets/[^/]*/)?include/", path) or path.endswith("/nccl.h")
            for path in self.made_of.get(name, ()))

    def missing(self, names):
        return [name for name in names if name not in self.made_of or not (self.directory / name).exists()]

    def features(self, names):
        """{object: megabytes, in the order of FACTORS}"""
        code = code_bytes(self.directory, [name for name in names if name.endswith(".o")])
        result = {}
        for name in names:
            header = self.header.get(name)
            loaded = self.made_of.get(header, ())
            size, plain = code.get(name, 0) / 1e6, name in self.unoptimised
            result[name] = (sum(self.size(file) for file in set(self.made_of[name]).difference(loaded)) / 1e6,
                            self.size(self.directory / header) / 1e6 if header else 0,
                            self.size(self.directory / name) / 1e6 if name.endswith(".gch") else 0,
                            0 if plain else size, size if plain else 0)
        return result

    def work(self, names):
        """{object: processor seconds}"""
        return {name: sum(amount * factor for amount, factor in zip(amounts, FACTORS.values()))
                for name, amounts in self.features(names).items()}


def folder(name):
    parts = name.split("/")
    return "/".join(parts[:2 if parts[0] in {"kernels", "tests"} and parts[1] != "CMakeFiles" else 1])


def source(name):
    return re.sub(r"(^|/)CMakeFiles/([^/]+)\.dir/", r"\1\2: ", name).removesuffix(".o")


def report(title, build, work):
    total = sum(work.values())
    print(f"{title}: {total:.0f} processor seconds of work ({len(work)} compilations), "
          f"{sum(build.log.get(name, 0) for name in work):.0f} s by ninja's log")
    folders = defaultdict(lambda: [0.0, 0.0, 0])
    for name, seconds in work.items():
        sums = folders[folder(name)]
        sums[0] += seconds
        sums[1] += build.log.get(name, 0)
        sums[2] += 1
    print("     work    ninja  compilations")
    for name, (seconds, logged, count) in sorted(folders.items(), key=lambda item: -item[1][0]):
        print(f"  {seconds:7.1f}  {logged:7.1f}  {count:12}  {name}")
    print("  dearest:")
    for name, seconds in sorted(work.items(), key=lambda item: -item[1])[:15]:
        print(f"  {seconds:7.1f}  {build.log.get(name, 0):7.1f}                {source(name)}")
    print()


def check(figures):
    kept = read_kept()
    wrong = [f"{title}: {figures[title]:.0f} processor seconds of work; {KEPT.relative_to(ROOT)} has {kept[title]}"
             for title in figures if abs(figures[title] - kept[title]) > GROWTH * kept[title]]
    if wrong:
        sys.exit("\n".join(["minutes: wanted a change of at most a tenth, found", *wrong,
                            "The dearest sources above say what grew. If this is meant, record it: scripts/minutes.py --record"]))


def why_not(build, names):
    """Why the build has no figure that can be compared, or an empty text."""
    for name, wanted in {"CMAKE_BUILD_TYPE": "Release", "CMAKE_UNITY_BUILD": "ON", "TRAINYARD_SANITIZE": ""}.items():
        if (found := build.cache(name)) != wanted:
            return f"wanted {name}={wanted}, found '{found}'"
    missing = build.missing(names)
    return f"wanted a build of everything, found no {missing[0]}" if missing else ""


def read_kept():
    """The recorded figures, or nothing where none are recorded."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=ROOT / "build")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    build = Build(arguments.build)
    sets = {"quickstart": build.compiled(*QUICKSTART), "everything": build.compiled("all")}
    if (arguments.check or arguments.record) and (why := why_not(build, sets["everything"])):
        print(f"skipped: {why}")
        return
    if arguments.check and not read_kept():
        print("skipped: wanted recorded figures, found none: scripts/minutes.py --record")
        return
    figures = {}
    for title, names in sets.items():
        built = sorted(set(names) - set(build.missing(names)))
        work = build.work(built)
        figures[title] = round(sum(work.values()))
        report(title if len(built) == len(names) else f"{title}, {len(built)} of {len(names)} built", build, work)
    if arguments.record:
        KEPT.write_text(json.dumps(figures, indent=2) + "\n")
    if arguments.check:
        check(figures)


if __name__ == "__main__":
    main()
