#!/usr/bin/env python3
"""What a controller does with thousands of workers: R5 and R6 of docs/reliability.md.

  bench/many_workers.py [--workers 10000] [--minutes 30] [--restarts 2]

Starts a controller with TLS and a program that stands in for the workers, each with a certificate and a connection of its own
(bench/service_load/many_workers.cc), both on this machine. Prints how long the workers took to register; for the minutes that
follow, streams that were lost, how long answers took, and the controller's processor time and memory; and after each kill -9
of the controller, when the last worker was back. Needs build/bin and build/bench (scripts/build.sh), and two descriptors for
each worker.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from service import BUILD, TlsController

STAND_INS = str(BUILD / "bench/many_workers")
# The controller serves so many calls of one token in a second; a fleet has many.
TOKENS = 8


def seconds_until_all(stand_ins, workers, begin, patience):
    """And what happened meanwhile. Ends the program where it takes too long."""
    lost = failed = 0
    for line in stand_ins.stdout:
        now = json.loads(line)
        lost, failed = lost + now["lost"], failed + now["failed"]
        if now["registered"] == workers and now["at"] > begin + 1:  # An earlier line was of before.
            return time.monotonic() - begin, lost, failed
        if time.monotonic() - begin > patience:
            sys.exit(f"{now['registered']} of {workers} workers are registered after {patience} s; {failed} streams failed")
    sys.exit("the program that stands in for workers has ended")


def watch(controller, stand_ins, minutes):
    answers, lost, failed, beats, least, most = [], 0, 0, 0, float("inf"), 0
    begin, spent = time.monotonic(), controller.processor_seconds()
    for line in stand_ins.stdout:
        now = json.loads(line)
        answers += now["answers_us"]
        lost, failed, beats = lost + now["lost"], failed + now["failed"], beats + now["beats"]
        most, least = max(most, controller.megabytes()), min(least, now["registered"])
        if time.monotonic() - begin > 60 * minutes:
            break
    took = time.monotonic() - begin
    if not answers:
        sys.exit("the controller has answered nothing; watch for longer")
    answers.sort()
    at = [answers[int(part * (len(answers) - 1))] / 1000 for part in (0.5, 0.99, 0.999, 1)]
    print(f"{took / 60:.1f} min: {beats / took:.0f} beats/s, {lost} streams lost, {failed} failed, never fewer than {least} registered; "
          f"answers p50 {at[0]:.2f} ms, p99 {at[1]:.2f}, p99.9 {at[2]:.2f}, worst {at[3]:.1f} of {len(answers)}; "
          f"controller: {(controller.processor_seconds() - spent) / took:.2f} cores, at most {most:.0f} MB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=256, help="how many workers may be connecting: they share the machine")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--patience", type=float, default=600, help="seconds until all must be registered; else the exit status is 1")
    arguments = parser.parse_args()
    os.umask(0o077)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        controller = TlsController(directory)
        joins = [controller.token(f"fleet-{i}", "--role", "joiner", "--uses", str(arguments.workers)) for i in range(TOKENS)]
        begin = time.monotonic()
        with subprocess.Popen([STAND_INS, "--controller", controller.address, "--workers", str(arguments.workers), "--at-once", str(arguments.at_once), "--join", *joins],
                              stdout=subprocess.PIPE, text=True) as stand_ins:
            try:
                stand_ins.stdout.readline()
                print(f"{arguments.workers} workers have joined after {time.monotonic() - begin:.1f} s", flush=True)
                took, lost, failed = seconds_until_all(stand_ins, arguments.workers, time.monotonic(), arguments.patience)
                print(f"registered after {took:.1f} s; {lost} streams lost, {failed} failed", flush=True)
                watch(controller, stand_ins, arguments.minutes)
                for _ in range(arguments.restarts):
                    controller.kill()
                    begin = time.monotonic()
                    controller.start()
                    serving = time.monotonic() - begin
                    took, lost, failed = seconds_until_all(stand_ins, arguments.workers, begin, arguments.patience)
                    print(f"kill -9: serving again after {serving:.1f} s, all registered after {took:.1f} s; {lost} streams lost, {failed} failed; "
                          f"{controller.processor_seconds():.1f} s of processor, {controller.megabytes():.0f} MB", flush=True)
            finally:
                stand_ins.kill()
                controller.kill()


if __name__ == "__main__":
    main()
