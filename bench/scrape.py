#!/usr/bin/env python3
"""How long the controller's metrics page takes, with many workers and running jobs.

  bench/scrape.py [--workers 1000] [--jobs 100] [--scrapes 20]

Starts a controller with TLS and a program that stands in for the workers, as bench/many_workers.py
does. The ranks of the stand-ins are ready at once, and report a step with every beat. Each job takes
the 8 devices of one worker. Once all jobs run, the benchmark reads the page again and again, each
time by a new connection with TLS and a certificate, and prints how long that took.
"""

import argparse
import os
import re
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from many_workers import STAND_INS, TOKENS, seconds_until_all
from service import TRAINYARD, TlsController

SPEC = """
name: bench
model:
  preset: llama3-8b
  overrides: {layers: 2, hidden: 64, ffn: 128, heads: 4, kv_heads: 2, vocab: 256}
precision: F32
batch: {global: 8, micro: 1, sequence: 32}
data: {synthetic: {}}
optimizer: {adamw: {learning_rate: 1.0e-3}}
checkpoint: {directory: DIRECTORY, every_steps: 100}
steps: 1000000
devices: 8
"""
PAUSE = 1  # Seconds between scrapes.


class Page:
    def __init__(self, controller):
        self._address = controller.metrics
        reader = controller.reader()
        self._tls = ssl.create_default_context(cafile=reader / "authority.pem")
        self._tls.load_cert_chain(reader / "certificate.pem", reader / "key.pem")

    def read(self):
        with urllib.request.urlopen(self._address, context=self._tls, timeout=60) as answer:
            return answer.read().decode()


def submit(controller, jobs):
    token = controller.token("submitter", "--role", "submitter")
    environment = dict(
        os.environ,
        TRAINYARD_CONTROLLER=controller.address,
        TRAINYARD_TOKEN_FILE=token,
        TRAINYARD_AUTHORITY=controller.authority,
    )
    for i in range(jobs):
        done = subprocess.run(
            [TRAINYARD, "submit", "-", "--quiet"],
            input=SPEC.replace("DIRECTORY", f"job-{i}"),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(done.stderr)


def await_steps(page, jobs, patience=120):
    """Until every job has all the series of a job that runs."""
    deadline = time.monotonic() + patience
    while len(re.findall(r"^trainyard_mfu_ratio\{", page.read(), re.M)) < jobs:
        if time.monotonic() > deadline:
            sys.exit(f"not all of the {jobs} jobs run after {patience} s")
        time.sleep(1)


def measure(page, scrapes):
    times = []
    for _ in range(scrapes):
        begin = time.monotonic()
        text = page.read()
        times.append(1000 * (time.monotonic() - begin))
        time.sleep(PAUSE)
    series = sum(1 for line in text.splitlines() if not line.startswith("#"))
    print(
        f"{series} series, {len(text) / 1e6:.2f} MB; {scrapes} scrapes: median"
        f" {statistics.median(times):.0f} ms ({min(times):.0f} to {max(times):.0f})",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--scrapes", type=int, default=20)
    arguments = parser.parse_args()
    os.umask(0o077)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        controller = TlsController(directory, metrics_listen="0.0.0.0:0")
        joins = [
            controller.token(f"fleet-{i}", "--role", "joiner", "--uses", str(arguments.workers))
            for i in range(TOKENS)
        ]
        with subprocess.Popen(
            [
                STAND_INS,
                "--controller",
                controller.address,
                "--workers",
                str(arguments.workers),
                "--join",
                *joins,
            ],
            stdout=subprocess.PIPE,
            text=True,
        ) as stand_ins:
            try:
                stand_ins.stdout.readline()
                seconds_until_all(stand_ins, arguments.workers, time.monotonic(), 300)
                threading.Thread(
                    target=stand_ins.stdout.read, daemon=True
                ).start()  # A full pipe would stop the program.
                submit(controller, arguments.jobs)
                page = Page(controller)
                await_steps(page, arguments.jobs)
                measure(page, arguments.scrapes)
            finally:
                stand_ins.kill()
                controller.kill()


if __name__ == "__main__":
    main()
