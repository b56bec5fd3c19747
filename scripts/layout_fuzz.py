#!/usr/bin/env python3
"""Trains random jobs under random layouts, as processes through the service in F64, and compares
each with the same job on one rank.

  scripts/layout_fuzz.py [SECONDS] [--seed N [--case K]]      60 seconds without SECONDS

Random are the family and its sizes, data (chats and pairs of answers among them), validation,
trained patterns or adapters, steps, micro-batches, the optimizer (AdamW or Muon), and the layout: data, tensor, pipeline with virtual stages, context,
expert, schedule, recomputation and ZeRO, on up to eight ranks. Compared are the losses and gradient
norms of every step, and the tensors of the last checkpoint: parameters and moments. Several jobs run at a time, more than there are
cores: so ranks wait for each other in ever new orders.

Prints the seed, and of each case that differs what differs, both specs, and the command that trains
this case over and over. Exit status 1 where one differs, is refused, fails or does not end.
"""
import argparse
import itertools
import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "scripts/layout_fuzz")]
from checkpoints import read_tensors, trained_parameters  # noqa: E402
from problems import RANKS, TOKENS, Problem  # noqa: E402
from same_bits import write_indexed, write_npy  # noqa: E402
from service import BUILD, TRAINYARD, Service  # noqa: E402

LAYOUTS = 3  # Of each problem.
AT_A_TIME = 4
PATIENCE = 120  # Seconds without a step, of a job that takes one second alone.
# The largest relative difference between two layouts that are both right.
#
# From below: a number is a sum of some 1e4 products through some 50 ops, each rounded to 1.1e-16, so
# gradients agree to some 1e-14 (tests/train/step/layouts_test.cc: 3e-13 at most). AdamW moves a
# parameter by at most learning rate / epsilon = 3 times a gradient's error in a step, and a dozen
# steps carry the errors on. From above: weights that a step too early or too late reads differ by
# the learning rate, 3e-3.
LIMIT = 1e-9
# Shares of pairs (reward_accuracy) are not here: a rounding may turn a pair.
COMPARED = ("loss", "grad_norm", "validation_loss", "load_balancing_loss", "learning_rate")
# These are differences of sums of some logarithms of probabilities, and often zero but for rounding.
REWARDS = ("chosen_reward", "rejected_reward", "reward_margin", "validation_reward_margin")


class Failed(Exception):
    """A job did not do what it was asked for."""


class Slow(Failed):
    """A command did not end in time."""


def read_lines(words, **options):
    """What a command prints, one JSON object a line."""
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              timeout=PATIENCE, check=False, **options)
    except subprocess.TimeoutExpired:
        raise Slow(f"does not end within {PATIENCE} seconds: {words[1]}") from None
    if done.returncode != 0:
        raise Failed((done.stderr or done.stdout).strip())
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def families():
    """Those of the registry, each with a preset and the names of its fields."""
    found = {}
    for model in read_lines([TRAINYARD, "models", "-o", "jsonl"]):
        found.setdefault(model["family"], model)
    return [{"name": name, "preset": model["name"],
             "grouped": model.get("kv_heads") != model["heads"],
             "fields": {line["name"] for line in read_lines(
                 [TRAINYARD, "models", name, "--fields", "-o", "jsonl"])}}
            for name, model in found.items()]


def write_data(directory):
    source = random.Random(1)
    tokens = array("H", (min(int(source.expovariate(0.2)), TOKENS - 1) for _ in range(60 * 100)))
    write_indexed(directory, ("web", "code"), tokens, 100)
    for side in (8, 12):
        pixels = array("f", (source.gauss(0, 1) for _ in range(40 * side * side)))
        write_npy(directory / f"latents-{side}.npy", "<f4", (40, 1, side, side), pixels)
    write_chats(directory, source)
    write_npy(directory / "labels.npy", "|i1", (40,), array("b", (i % 3 for i in range(40))))


def write_chats(directory, source):
    """Conversations and pairs of answers, and a tokenizer whose tokens are letters and the words of
    the format."""
    words = ["user", "assistant", "\n", *"abcdefghijklmnopqrstuvwxyz"]
    marks = ["<|im_start|>", "<|im_end|>"]
    tokens = {token: number for number, token in enumerate(words + marks)}
    added = [{"id": tokens[token], "content": token, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": token in marks}
             for token in ("user", "assistant", *marks)]
    model = {"type": "BPE", "vocab": tokens, "merges": [], "unk_token": "z", "fuse_unk": False,
             "byte_fallback": False}
    (directory / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": None,
         "post_processor": None, "decoder": {"type": "Fuse"}, "model": model}))

    def text():
        return "".join(source.choices("abcdefgh", k=source.randint(1, 6)))

    def turn(role, content):
        return {"role": role, "content": content}

    with open(directory / "chats.jsonl", "w", encoding="utf-8") as file:
        for _ in range(80):
            turns = [turn(role, text()) for _ in range(source.randint(1, 2))
                     for role in ("user", "assistant")]
            file.write(json.dumps({"messages": turns}) + "\n")
    with open(directory / "pairs.jsonl", "w", encoding="utf-8") as file:
        for _ in range(60):
            file.write(json.dumps({"prompt": text(), "chosen": text(), "rejected": text() + "z"})
                       + "\n")


def relative(found, wanted):
    return abs(found - wanted) / max(abs(wanted), 1e-300)


@dataclass
class Difference:
    """The largest one, and where the first one beyond the limit is."""
    largest: float = 0.0
    first: str = ""

    def add(self, size, where):
        if not size <= LIMIT and not self.first:  # Also where it is not a number.
            self.first = where
        self.largest = max(self.largest, size) if size == size else math.inf


def compare(one, layout):
    """Of what `train` returns."""
    difference = Difference()
    for wanted, found in itertools.zip_longest(one["steps"], layout["steps"], fillvalue={}):
        step = wanted.get("step", found.get("step"))
        for key in COMPARED:
            a, b = wanted.get(key), found.get(key)
            known = isinstance(a, (int, float)) and isinstance(b, (int, float))
            size = relative(b, a) if known else math.inf if a != b else 0.0
            difference.add(size, f"step {step}, {key}: one rank {a}, layout {b}")
        for key in REWARDS:
            a, b = wanted.get(key), found.get(key)
            size = math.inf if (a is None) != (b is None) else abs((b or 0.0) - (a or 0.0))
            difference.add(size, f"step {step}, {key}: one rank {a}, layout {b}")
    if one["tensors"].keys() != layout["tensors"].keys():
        names = one["tensors"].keys() ^ layout["tensors"].keys()
        difference.add(math.inf, f"checkpoint: only one of the two has {sorted(names)[:3]}")
        return difference
    norms = {key: math.hypot(*values) for key, values in one["tensors"].items()}
    largest = {kind: max(norm for (of, _), norm in norms.items() if of == kind)
               for kind, _ in norms}
    # Some gradients are zero but for rounding, so a tensor is compared beside the largest one.
    for (kind, name), wanted in one["tensors"].items():
        apart = math.dist(layout["tensors"][kind, name], wanted)
        size = apart / max(largest[kind], 1e-300)
        difference.add(size, f"checkpoint, {kind} {name}: the difference is {apart}, the tensor "
                             f"{norms[kind, name]}, in the L2 norm")
    return difference


@dataclass
class Tally:
    """Of all threads, under the lock."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    problems: int = 0
    cases: int = 0
    bad: int = 0
    largest: float = 0.0


class Fuzz:
    def __init__(self, service, seed):
        self._service = service
        self._directory = Path(service.directory)
        self._seed = seed
        self._families = families()
        self._names = itertools.count()
        self.tally = Tally()
        write_data(self._directory)

    def _trainyard(self, *words):
        return read_lines([TRAINYARD, *words], cwd=self._directory, env=self._service.environment)

    def train(self, spec):
        """The records of the steps, and the tensors of the last checkpoint."""
        name = f"{spec['name']}-{next(self._names)}"
        named = spec | {"name": name, "checkpoint": {"directory": f"runs/{name}"}}
        path = self._directory / f"{name}.json"
        path.write_text(json.dumps(named), encoding="utf-8")
        try:
            job = self._trainyard("submit", path, "-o", "jsonl")[0]["id"]
        except Failed as refused:
            raise Failed(f"refused: {refused}") from None
        try:
            self._await_end(job)
        except Failed as failed:
            ended = self._trainyard("get", job, "-o", "jsonl")[0]
            raise Failed(f"{job}: {failed}: {ended.get('state_reason')}") from None
        return {"steps": self._trainyard("steps", job, "-o", "jsonl"),
                "tensors": read_tensors(self._directory / "runs" / name)}

    def _await_end(self, job):
        """However busy the machine is, as long as the job goes on."""
        before = None
        while True:
            try:
                self._trainyard("watch", job, "--quiet")
                return
            except Slow:
                now = self._trainyard("get", job, "-o", "jsonl")[0]
                place = (now["state"], now.get("step"))
                if place == before:
                    raise
                before = place

    def _train_alone(self, spec):
        """A rank alone trains a step: for the names of the parameters, and as the base of an adapter."""
        name = f"names-{next(self._names)}"
        path = self._directory / f"{name}.json"
        path.write_text(json.dumps(spec | {"steps": 1, "checkpoint": {"directory": name}}))
        read_lines([BUILD / "bin/trainyard-trainer", path], cwd=self._directory)
        return name, trained_parameters(self._directory / name)

    def run_problem(self, number, chosen, end):
        """Compares the chosen layouts of a problem, or those before `end`, and one at least."""
        case = number * LAYOUTS + chosen[0]
        try:
            spec = None
            problem = Problem(random.Random(f"{self._seed} {number}"), self._families,
                              self._train_alone)
            spec = problem.one_rank()
            one = self.train(spec)
        except Failed as failed:
            self.report(case, str(failed), spec)
            return
        for layout in chosen:
            if layout != chosen[0] and time.monotonic() >= end:
                break
            case = number * LAYOUTS + layout
            divided = problem.draw_layout(random.Random(f"{self._seed} {number} {layout}"))
            try:
                difference = compare(one, self.train(divided))
            except Failed as failed:
                self.report(case, str(failed), divided)
                continue
            with self.tally.lock:
                self.tally.cases += 1
                self.tally.largest = max(self.tally.largest, difference.largest)
            if difference.first:
                self.report(case, f"differs: {difference.first}", spec, divided)
        with self.tally.lock:
            self.tally.problems += 1

    def report(self, case, what, *specs):
        with self.tally.lock:
            self.tally.bad += 1
            print(f"case {case} {what}", *(json.dumps(spec) for spec in specs),
                  f"again: scripts/layout_fuzz.py --seed {self._seed} --case {case}",
                  sep="\n  ", flush=True)


def work(fuzz, numbers, chosen, end):
    while time.monotonic() < end:
        fuzz.run_problem(next(numbers), chosen, end)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", metavar="SECONDS", type=float, nargs="?", default=60)
    parser.add_argument("--seed", type=int, help="otherwise drawn")
    parser.add_argument("--case", type=int, metavar="K", help="only this one, over and over")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    print(f"layouts of random jobs: --seed {seed}", flush=True)
    numbers, chosen = itertools.count(), range(LAYOUTS)
    if options.case is not None:
        numbers = itertools.repeat(options.case // LAYOUTS)
        chosen = (options.case % LAYOUTS,)
    with Service(RANKS, workers=2) as service, ThreadPoolExecutor(AT_A_TIME) as pool:
        fuzz = Fuzz(service, seed)
        begin = time.monotonic()
        for done in [pool.submit(work, fuzz, numbers, chosen, begin + options.seconds)
                     for _ in range(AT_A_TIME)]:
            done.result()
    tally = fuzz.tally
    print(f"{tally.cases} jobs of {tally.problems} problems in {time.monotonic() - begin:.0f} s, "
          f"seed {seed}: {tally.bad} findings; largest difference {tally.largest:.1g}")
    sys.exit(0 if tally.bad == 0 and tally.cases > 0 else 1)


if __name__ == "__main__":
    main()
