#!/usr/bin/env python3
"""How long a step of a job takes with one build and with another, in turn on the same machine.

  bench/job_step.py BIN... [--rounds 7]

Each BIN is a directory of programs, such as build/bin of another revision. A round starts a service from each, `trainyard up` with two
devices, and runs a tiny job of two ranks and 2,000 steps there. Prints the median of the rounds' median steps.

A step lasts from the end of the step before to its own end, by the times that the job reports. So
builds that define the seconds of a step differently are compared alike.
"""
import argparse
import datetime
import json
import statistics

from service import Service

SPEC = """
name: step
model: {preset: llama3-8b, overrides: {layers: 2, hidden: 64, ffn: 192, heads: 4, kv_heads: 2, vocab: 256, max_seq: 64}}
precision: F32
batch: {global: 8, micro: 4, sequence: 64}
data: {synthetic: {}}
optimizer: {adamw: {learning_rate: 1.0e-3}}
steps: 2000
devices: 2
"""
WARM_UP = 200
TOGETHER = 100  # Steps whose time is taken as a whole, because the times have milliseconds.


def unix(time):
    return datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()


def median_step(binaries):
    """Milliseconds."""
    with Service(2, binaries) as service:
        with open(f"{service.directory}/step.yaml", "w", encoding="utf-8") as spec:
            spec.write(SPEC)
        job = json.loads(service.run("submit", f"{service.directory}/step.yaml", "-o", "jsonl"))["id"]
        service.run("watch", job)
        ends = [unix(json.loads(line)["finish_time"]) for line in service.run("steps", job, "-o", "jsonl").splitlines()]
    marks = ends[WARM_UP::TOGETHER]
    return statistics.median(end - begin for begin, end in zip(marks, marks[1:])) / TOGETHER * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="+", metavar="BIN")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    steps = {binaries: [] for binaries in arguments.binaries}
    for _ in range(arguments.rounds):
        for binaries, found in steps.items():
            found.append(median_step(binaries))
    for binaries, found in steps.items():
        print(f"{binaries}: {statistics.median(found):.3f} ms ({min(found):.3f} to {max(found):.3f})")


if __name__ == "__main__":
    main()
