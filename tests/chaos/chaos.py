#!/usr/bin/env python3
"""Real controllers, workers and trainers under faults, and whether anything is lost by them. docs/reliability.md.

    chaos.py --seconds 60 [--seed S]      random faults over jobs of several layouts
    chaos.py --scenario NAME              one scripted run; `all` for each of them, one after the other

TRAINYARD_BIN is the directory of the programs. Exit code 0: nothing was lost."""

import argparse
import os
import pathlib
import sys
import threading
import time

import isolation


def binaries():
    path = os.environ.get("TRAINYARD_BIN")
    if not path or not (pathlib.Path(path) / "trainyard-trainer").exists():
        sys.exit(f"chaos: wanted the directory of the programs in TRAINYARD_BIN, found {path!r}")
    return pathlib.Path(path).resolve()


def scripted(name, scenario):
    from jobs import Peace
    from run import Run
    print(f"== {name}: {scenario.proves}", flush=True)
    begin = time.monotonic()
    peace = {}
    # Side by side with the disturbed run: it takes about as long.
    quiet = threading.Thread(target=lambda: peace.update(Peace(binaries()).results([scenario.kind])))
    quiet.start()
    run = Run(binaries(), scenario.workers)
    problems = []
    try:
        job_id = run.submit(scenario.kind)
        problems += scenario.disturb(run, job_id) or []
    except AssertionError as failure:
        problems.append(str(failure))
    quiet.join()
    passed = run.tell(problems + run.check(peace))
    print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
    return passed


def main():
    import scenarios
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seconds", type=float, metavar="N", help="how long faults go on")
    what.add_argument("--scenario", choices=["all", *scenarios.SCENARIOS], metavar="NAME",
                      help="all, " + ", ".join(scenarios.SCENARIOS))
    parser.add_argument("--seed", type=int, help="of what happens when (default: from the clock)")
    options = parser.parse_args()
    isolation.enter()
    if options.seconds is not None:
        import random_run
        seed = options.seed if options.seed is not None else int(time.time())
        sys.exit(0 if random_run.disturb(binaries(), options.seconds, seed) else 1)
    names = list(scenarios.SCENARIOS) if options.scenario == "all" else [options.scenario]
    failed = [name for name in names if not scripted(name, scenarios.SCENARIOS[name])]
    if failed:
        sys.exit(f"chaos: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
