#!/usr/bin/env python3
"""From `trainyard submit` to the first finished step of a tiny job, with the service running: the median of --jobs.

  bench/submit_latency.py [--jobs 20] [--devices 1]

Starts a service of its own (`trainyard up`) in a temporary directory and ends it. Two times are printed: until the step was
finished (the step record's own time), and until a client that followed the job had seen its record. Needs build/bin
(scripts/build.sh).
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import time
from pathlib import Path

from service import ROOT, TRAINYARD, Service


def measure(service, spec, name, devices):
    begin = time.time()
    job = service.run("submit", spec, "--set", f"name={name}", "--set", f"devices={devices}").strip()
    with subprocess.Popen([TRAINYARD, "steps", job, "--follow", "-o", "jsonl"], env=service.environment, stdout=subprocess.PIPE,
                          text=True) as steps:
        record = json.loads(steps.stdout.readline())
        seen = time.time() - begin
        steps.stdout.read()
    finished = datetime.datetime.fromisoformat(record["finish_time"].replace("Z", "+00:00")).timestamp() - begin
    service.run("watch", job, "--quiet")
    return finished, seen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--devices", type=int, default=1)
    arguments = parser.parse_args()
    text = (ROOT / "recipes/tiny.yaml").read_text()
    for pattern, line in (("^steps: .*", "steps: 3"), ("^(validation|checkpoint): .*\\n", "")):
        text, found = re.subn(pattern, line, text, flags=re.M)
        assert found, pattern
    with Service(arguments.devices) as service:
        spec = os.path.join(service.directory, "tiny.yaml")
        Path(spec).write_text(text)
        measure(service, spec, "warm-up", arguments.devices)
        times = [measure(service, spec, f"latency-{i}", arguments.devices) for i in range(arguments.jobs)]
    for what, seconds in zip(("first step finished", "its record seen by a client"), zip(*times)):
        print(f"{what}: median {statistics.median(seconds):.3f} s, {min(seconds):.3f} to {max(seconds):.3f} s "
              f"({arguments.jobs} jobs, {arguments.devices} device(s))")


if __name__ == "__main__":
    main()
