#!/usr/bin/env python3
"""Proves that a change of the code changes no bit: this tree and an earlier revision, BASE, side
by side on this machine.

  scripts/same_bits.py BASE [--recipes GLOB...] [--steps 4] [--speed [--rounds 7]]

Builds BASE in build-base/COMMIT/, which is kept for the next time, and this tree in build/ (or
$TRAINYARD_BUILD). Compared is every job spec of recipes/ and tests/same_bits/, or of the GLOBs,
as BASE has the spec or, where BASE has none, as this tree has it:

  programs  `trainyard-trainer --dump-program` of every rank prints the same text, after every pass
  training  a few steps through a service of each, on CPU ranks, have the same losses and gradient
            norms, to the last bit, and leave checkpoints of the same digest

Without GLOBs the programs of every preset that BASE knows are compared, too, on one rank.

--speed measures steps of both in turn. The ratio is the median of the rounds' ratios, and one above
1.02 is a difference. Let nothing else run then.

Prints a line a spec, with the first difference of the programs and of training. Exit status 1 where
something differs, or fails in both. What BASE refuses and this tree takes is new, no difference.
A spec with init_from needs, among the chosen ones, the spec that wrote the checkpoint. Digests
differ between machines, so none is recorded.
"""
import argparse
import array
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
import job_step  # noqa: E402
from service import Service  # noqa: E402

SPECS = ("recipes/*.yaml", "tests/same_bits/*.yaml")
TARGETS = ("trainyard", "trainyard-controller", "trainyard-worker", "trainyard-trainer")
# Of a step's record, what depends on the machine. All else is computed.
MEASURED = re.compile(r"seconds|phases|mfu|model_flops_per_second_per_device|finish_time|gpu_.*")
# Lines of a program's text that came later: compared where BASE prints them.
LATER = ("== memory on a GPU: ",)
# A recipe for larger machines trains a smaller job here. Its programs are compared as they are.
SMALLER = {"gpt2-124m": ("model.overrides.layers=2", "batch.global=2", "batch.micro=1",
                         "batch.sequence=128")}
PRESET = """name: preset
model: {{preset: {}}}
batch: {{global: 1, micro: 1, sequence: 128}}
data: {{synthetic: {{}}}}
optimizer: {{adamw: {{learning_rate: 1e-4}}}}
steps: 1
"""
TRAIN_STEPS = ("--case byte --precision f32", "--case byte --precision bf16")
SLOWER = 1.02


class Failed(Exception):
    """A program did not do what it was asked for."""


def run(words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Failed(f"{Path(words[0]).name}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def two(kind, base, tree):
    """A difference, for people."""
    return f"{kind}\n    base {base}\n    tree {tree}"


# Builds.


def base_tree(revision):
    """BASE's sources. A clone rather than an archive, so that the programs know their revision."""
    try:
        commit = run(["git", "-C", ROOT, "rev-parse", "--verify", revision + "^{commit}"]).strip()
    except Failed:
        sys.exit(f"same_bits: wanted a revision in this clone, found '{revision}'; "
                 "'git fetch --unshallow' brings old commits")
    tree = ROOT / "build-base" / commit
    if not tree.exists():
        part = tree.with_suffix(".part")
        run(["rm", "-rf", part])
        run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, part])
        run(["git", "-C", part, "checkout", "--quiet", "--detach", commit])
        part.rename(tree)
    build = tree / "build"
    if not (build / "build.ninja").exists():
        run(["cmake", "-S", tree, "-B", build, "-G", "Ninja", "-DTRAINYARD_CUDA=off"])
    return tree


def build(tree, directory, targets):
    """The directory of the built programs. Relative to the trees, the compiler cache knows both."""
    environment = dict(os.environ, CCACHE_BASEDIR=str(tree), TRAINYARD_BUILD=str(directory))
    run([tree / "scripts/build.sh", *targets], env=environment)
    return directory / "bin"


# Programs.


def program(binaries, text, rank):
    """Whether --dump-program succeeds, and what it says, an error included."""
    done = subprocess.run([binaries / "trainyard-trainer", "--dump-program", "-", "--rank",
                           str(rank)], input=text, capture_output=True, text=True)
    return done.returncode == 0, done.stdout if done.returncode == 0 else done.stderr


def without_later(base, tree):
    """The tree's text without the lines of which BASE knows nothing."""
    unknown = tuple(start for start in LATER if start not in base)
    return "".join(line for line in tree.splitlines(True) if not line.startswith(unknown))


def first_difference(base, tree):
    """Of two texts that differ: the pass, the line's number, and both lines."""
    part = "before any pass"
    lines = zip_longest(base.splitlines(), tree.splitlines(), fillvalue="(the end)")
    for number, (a, b) in enumerate(lines, 1):
        if a != b:
            break
        if a.startswith("== "):
            part = a.removeprefix("== ")
    return two(f"{part}, line {number}", a, b)


def compare_programs(pool, both, text, ranks):
    """(What differs, bytes compared)."""
    sides = [list(pool.map(program, [binaries] * ranks, [text] * ranks, range(ranks)))
             for binaries in both]
    for rank, ((base_good, base), (tree_good, tree)) in enumerate(zip(*sides)):
        tree = without_later(base, tree)
        if base != tree or base_good != tree_good:
            return [f"program of rank {rank}, {first_difference(base, tree)}"], 0
        if not base_good:
            return [f"program of rank {rank}, which both refuse: {base.strip()}"], 0
    return [], sum(len(text) for _, text in sides[0])


# Training.


def write_npy(path, descr, shape, elements):
    header = str({"descr": descr, "fortran_order": False, "shape": shape})
    head = b"\x93NUMPY\x01\0" + struct.pack("<H", 118) + (header.ljust(117) + "\n").encode("ascii")
    path.write_bytes(head + elements.tobytes())


def write_indexed(directory, names, tokens, documents):
    """Tokens as Megatron writes them, in so many documents of the same length."""
    length = len(tokens) // documents
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1)
    index += struct.pack(f"<{documents}i", *[length] * documents)
    index += struct.pack(f"<{documents}q", *range(0, 2 * length * documents, 2 * length))
    index += struct.pack(f"<{documents + 1}q", *range(documents + 1))
    for name in names:
        (directory / f"{name}.bin").write_bytes(tokens.tobytes())
        (directory / f"{name}.idx").write_bytes(index)


def write_corpora(directory):
    """What the specs' data paths name: a text, tokens as Megatron writes them, and images as NumPy does."""
    source = random.Random(1)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 9))) for _ in range(500)]
    text = " ".join(source.choices(words, k=300_000))
    (directory / "corpus.txt").write_text(text + "\n", encoding="ascii")
    tokens = array.array("H", source.choices(range(50_000), k=200 * 300))
    write_indexed(directory, ("corpus", "web", "code"), tokens, 200)
    images, shape = 40, (2, 16, 16)
    elements = array.array("f", (source.gauss(0, 1) for _ in range(images * shape[0] * shape[1] * shape[2])))
    write_npy(directory / "latents.npy", "<f4", (images, *shape), elements)
    write_npy(directory / "labels.npy", "|i1", (images,), array.array("b", (i % 3 for i in range(images))))


def command(service, *words):
    try:
        return service.run(*words)
    except SystemExit as error:  # A benchmark would end.
        raise Failed(str(error).strip()) from None


def train(service, name, text, steps):
    """(digest, what was computed, step by step); or what went wrong, as a string."""
    directory = Path(service.directory)
    spec = directory / f"{name}.yaml"
    # Warm-up and decay are together no longer than a job.
    shorter = re.sub(r"((?:warmup|decay)_steps: )(\d+)", lambda n: n[1] + str(min(int(n[2]), steps // 2)), text)
    spec.write_text(shorter, encoding="utf-8")
    sets = (f"steps={steps}", f"checkpoint.directory=runs/{name}", *SMALLER.get(name, ()))
    words = [word for setting in sets for word in ("--set", setting)]
    try:
        job = command(service, "submit", str(spec), *words).strip()
        try:
            command(service, "watch", job, "--quiet")
        except Failed:
            ended = json.loads(command(service, "get", job, "-o", "jsonl"))
            raise Failed(ended["state_reason"]) from None
        lines = command(service, "steps", job, "-o", "jsonl").splitlines()
        digest = command(service, "checkpoint", "digest", str(directory / "runs" / name)).split()[0]
    except Failed as error:
        return str(error).replace(service.directory, "SERVICE")
    records = [json.loads(line) for line in lines]
    return digest, [{key: value for key, value in step.items() if not MEASURED.fullmatch(key)}
                    for step in records]


def compare_training(services, name, text, steps):
    """(What differs, a word on what was compared)."""
    base, tree = (train(service, name, text, steps) for service in services)
    if isinstance(base, str) or isinstance(tree, str):
        said = [f"fails: {side}" if isinstance(side, str) else "trains" for side in (base, tree)]
        return [two("training", *said)], ""
    for number, (a, b) in enumerate(zip_longest(base[1], tree[1], fillvalue={}), 1):
        for key in a or b:  # What BASE does not have came later.
            if a.get(key) != b.get(key):
                return [two(f"step {number}, {key}", a.get(key), b.get(key))], ""
    if len(base[1]) != steps:
        return [f"training: wanted the records of {steps} steps, found {len(base[1])}"], ""
    if base[0] != tree[0]:
        return [two("checkpoint's digest", base[0], tree[0])], ""
    return [], f"{steps} steps, digest {base[0][:16]}"


# Speed.


def step_milliseconds(binaries, words):
    said = run([binaries.parent / "bench/train_step", *words.split(), "--steps", "10"])
    return float(re.search(r"step median ([0-9.]+) ms", said)[1])


def compare_speed(both, rounds):
    """Whether the tree is as fast."""
    cases = {f"train_step {words}": lambda binaries, words=words: step_milliseconds(binaries, words)
             for words in TRAIN_STEPS}
    cases["bench/job_step.py"] = job_step.median_step
    fast = True
    for name, measure in cases.items():
        found = ([], [])
        for number in range(rounds):
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                found[side].append(measure(both[side]))
        ratio = statistics.median(tree / base for base, tree in zip(*found))
        fast = fast and ratio <= SLOWER
        base, tree = (f"{statistics.median(times):.3f} ms ({min(times):.3f} to {max(times):.3f})"
                      for times in found)
        print(f"{'same   ' if ratio <= SLOWER else 'slower '} {name}: base {base}, tree {tree}, "
              f"ratio {ratio:.4f}", flush=True)
    return fast


# All.


class Report:
    def __init__(self):
        self.same, self.different, self.new = 0, 0, 0

    def line(self, name, differences, compared):
        self.same += not differences
        self.different += bool(differences)
        for difference in differences:
            print(f"differs {name}: {difference}", flush=True)
        if not differences:
            print(f"same    {name}: {compared}", flush=True)

    def newer(self, name, refusal):
        self.new += 1
        print(f"new     {name}: base refuses the spec: {refusal}", flush=True)


def chosen_specs(globs, base):
    """(name, text) of each, those that start from another's checkpoint last."""
    paths = sorted({path.relative_to(ROOT) for pattern in globs for path in ROOT.glob(pattern)})
    if not paths:
        sys.exit("same_bits: --recipes: wanted patterns of files, relative to the tree's root, "
                 f"found none that matches: {' '.join(globs)}")
    sources = [base / path if (base / path).exists() else ROOT / path for path in paths]
    specs = [(path.stem, path.read_text(encoding="utf-8")) for path in sources]
    return sorted(specs, key=lambda spec: "\ninit_from:" in spec[1])


def devices(text):
    found = re.search(r"^devices: (\d+)", text, re.M)
    return int(found[1]) if found else 1


def compare_specs(report, pool, both, specs, steps):
    most = max(devices(text) for _, text in specs)
    with Service(most, both[0]) as base, Service(most, both[1]) as tree:
        for service in (base, tree):
            write_corpora(Path(service.directory))
        for name, text in specs:
            (known, refusal), (taken, _) = (program(binaries, text, 0) for binaries in both)
            if taken and not known:
                report.newer(name, refusal.strip())
                continue
            ranks = devices(text)
            recorded, size = compare_programs(pool, both, text, ranks)
            computed, trained = compare_training((base, tree), name, text, steps)
            compared = f"programs of {ranks} ranks ({size / 1e3:.0f} kB), {trained}"
            report.line(name, recorded + computed, compared)


def compare_presets(report, pool, both):
    models = run([both[0] / "trainyard", "models", "-o", "jsonl"]).splitlines()
    for preset in (json.loads(line)["name"] for line in models):
        differences, size = compare_programs(pool, both, PRESET.format(preset), 1)
        report.line(f"preset {preset}", differences, f"program ({size / 1e3:.0f} kB)")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", help="a revision of this repository")
    parser.add_argument("--recipes", nargs="+", metavar="GLOB", help="relative to the tree's root")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rounds", type=int, default=7, help="of --speed")
    options = parser.parse_args()
    begin = time.monotonic()
    targets = (*TARGETS, "train_step") if options.speed else TARGETS
    report, fast = Report(), True
    try:
        base = base_tree(options.base)
        here = ROOT / os.environ.get("TRAINYARD_BUILD", "build")
        both = (build(base, base / "build", targets), build(ROOT, here, targets))
        seconds = time.monotonic() - begin
        versions = [run([side / "trainyard-trainer", "--version"]).strip() for side in both]
        print(f"base {versions[0]}, tree {versions[1]}; built in {seconds:.0f} s", flush=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            specs = chosen_specs(options.recipes or SPECS, base)
            compare_specs(report, pool, both, specs, options.steps)
            if not options.recipes:
                compare_presets(report, pool, both)
        seconds = time.monotonic() - begin
        print(f"{report.same} same, {report.different} differ, {report.new} new; {seconds:.0f} s",
              flush=True)
        fast = compare_speed(both, options.rounds) if options.speed else True
    except Failed as error:
        sys.exit(f"same_bits: {error}")
    sys.exit(0 if report.different == 0 and fast else 1)


if __name__ == "__main__":
    main()
