#!/usr/bin/env python3
"""Real controllers, workers and trainers under faults, and whether anything is lost by them. docs/reliability.md.

    chaos.py --seconds 60 [--seed S]      random faults over jobs of several layouts
    chaos.py --scenario NAME              one scripted run; `all` for each of them, `half` for half of them at random

TRAINYARD_BIN is the directory of the programs. Exit code 0: nothing was lost."""

import argparse
import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys
import time

import isolation
import jobs
import random_run
import scenarios
from run import Run

AT_ONCE = 3  # Scenarios on two cores.


def binaries():
    path = os.environ.get("TRAINYARD_BIN")
    if not path or not (pathlib.Path(path) / "trainyard-trainer").exists():
        sys.exit(f"chaos: wanted the directory of the programs in TRAINYARD_BIN, found {path!r}")
    return pathlib.Path(path).resolve()


def scripted(name, scenario):
    print(f"== {name}: {scenario.proves}", flush=True)
    begin = time.monotonic()
    # Side by side with the disturbed run: it takes about as long.
    peace = concurrent.futures.ThreadPoolExecutor().submit(
        jobs.Peace(binaries()).results, [scenario.kind], one_by_one=True)
    run = Run(binaries(), scenario.workers)
    problems = []
    try:
        job_id = run.submit(scenario.kind)
        problems += scenario.disturb(run, job_id) or []
    except AssertionError as failure:
        problems.append(str(failure))
    passed = run.tell(problems + run.check(peace.result()))
    print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
    return passed


def side_by_side(names):
    """Several at once, each in a process and namespaces of its own: most of their time is waiting. Who failed."""
    environment = {name: value for name, value in os.environ.items() if name != isolation.INSIDE}

    def one(name):
        done = subprocess.run([sys.executable, __file__, "--scenario", name], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(done.stdout, end="", flush=True)
        return done.returncode
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return [name for name, code in zip(names, pool.map(one, names)) if code != 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seconds", type=float, metavar="N", help="how long faults go on")
    what.add_argument("--scenario", choices=["all", "half", *scenarios.SCENARIOS], metavar="NAME",
                      help="all, half, " + ", ".join(scenarios.SCENARIOS))
    parser.add_argument("--seed", type=int, help="of what happens when, and of which half (default: from the clock)")
    options = parser.parse_args()
    isolation.enter()
    seed = options.seed if options.seed is not None else int(time.time())
    if options.seconds is not None:
        sys.exit(0 if random_run.disturb(binaries(), options.seconds, seed) else 1)
    names = list(scenarios.SCENARIOS)
    if options.scenario == "half":
        print(f"seed {seed}", flush=True)
        chosen = set(random.Random(seed).sample(names, (len(names) + 1) // 2))
        names = [name for name in names if name in chosen]
    elif options.scenario != "all":
        sys.exit(0 if scripted(options.scenario, scenarios.SCENARIOS[options.scenario]) else 1)
    if failed := side_by_side(names):
        sys.exit(f"chaos: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
