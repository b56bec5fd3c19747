#!/usr/bin/env python3
"""How long others wait while somebody lists jobs: S12 of docs/reliability.md.

  bench/crowded_store.py [--seconds 15] [--rounds 3] [--jobs 10000 100000]

Fills a store with jobs of one namespace, 90 % of which have ended, and starts a controller with TLS on it. In each round a caller
gets a job that has ended 40 times a second: alone, beside a viewer of another namespace, which has no jobs, who lists them 50 times a
second, and beside a viewer of the same namespace who does so. Needs build/bin and build/bench (scripts/build.sh).
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

from service import BUILD, CONTROLLER, TlsController


class Calls:
    def __init__(self, controller):
        self._controller = controller
        self._getter = controller.token("getter", "--role", "submitter")
        self._listers = {name: controller.token(name, "--role", "viewer", "--namespace", name) for name in ("empty", "default")}

    def _start(self, token, rate, seconds, *words):
        return subprocess.Popen([str(BUILD / "bench/calls"), "--controller", self._controller.address, "--authority", self._controller.authority,
                                 "--token", token, "--rate", str(rate), "--seconds", str(seconds), *words], stdout=subprocess.PIPE, text=True)

    def beside(self, lister, seconds):
        """What the caller who gets a job finds, and the lister; None: nobody lists."""
        other = lister and self._start(self._listers[lister], 50, seconds)
        with self._start(self._getter, 40, seconds, "--get") as calls:
            answers = json.loads(calls.stdout.read())
        return answers, other and json.loads(other.communicate()[0])


def measure(jobs, arguments):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        subprocess.run([str(BUILD / "bench/store_soak"), "--controller", CONTROLLER, "--state", directory + "/state", "--jobs", str(jobs), "--fill"],
                       check=True)
        controller = TlsController(directory)
        try:
            calls = Calls(controller)
            found = {None: [], "empty": [], "default": []}
            for _ in range(arguments.rounds):
                for lister, answers in found.items():
                    answers.append(calls.beside(lister, arguments.seconds))
                    print(f"{jobs} jobs, lister of {lister}: {answers[-1]}", flush=True)
            for lister, answers in found.items():
                print(f"{jobs} jobs, lister of {lister}: p50 {statistics.median(got['p50_ms'] for got, _ in answers):.2f} ms, "
                      f"p99 {statistics.median(got['p99_ms'] for got, _ in answers):.2f} ms (medians of {arguments.rounds})")
        finally:
            controller.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, nargs="*", default=[10_000, 100_000])
    arguments = parser.parse_args()
    os.umask(0o077)
    for jobs in arguments.jobs:
        measure(jobs, arguments)


if __name__ == "__main__":
    main()
