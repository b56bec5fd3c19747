#!/usr/bin/env python3
"""Draws the dashboards of deploy/grafana/dashboards from a real Prometheus, without Grafana.

  $(scripts/install_test_tools.sh --python) scripts/boards.py [DIRECTORY] [--minutes M]

The pictures go into docs/images/, or into DIRECTORY. The script starts what the tests of
tests/deploy/prometheus start: a controller, workers with CPU ranks, and Prometheus with the
configuration and the rules of deploy/prometheus. Jobs run for 9 minutes, or M. One job has four
ranks, of which one is killed. Four jobs have one rank each and differ in their learning rate. Near
the end a worker is killed. No job runs on a GPU: one worker offers two GPUs that exist only in the
tests' fake NVML. scripts/boards/draw.py then asks Prometheus and draws.

Needs the build and scripts/install_test_tools.sh. Installs Chromium and pngquant from Debian.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLACES = ["tests/deploy/prometheus", "tests", "scripts/boards", "scripts/screenshots"]
os.environ.setdefault("TRAINYARD_BIN", str(ROOT / "build/bin"))
sys.path[:0] = [str(ROOT / place) for place in PLACES]

import browse  # noqa: E402
import draw  # noqa: E402
from chaos.processes import ranks, send  # noqa: E402
from live_gpu_test import BIN, LiveGpus, gpu, page  # noqa: E402
from live_test import LONG, Live  # noqa: E402
from watchers import Prometheus, until  # noqa: E402

TOOLS = ["chromium", "chromium-driver", "fonts-dejavu-core", "fonts-inter", "pngquant", "prometheus"]
WIDTH = 1400  # Of a picture, in pixels.
EVERY = 3     # Seconds between two scrapes.
RECIPE = (ROOT / "recipes/tiny.yaml").read_text(encoding="utf-8")
TEXT = "data={text: {path: corpus.txt, tokenizer: BYTES, validation_fraction: 0.02}}"
LARGER = "model.overrides={layers: 4, hidden: 128, ffn: 384, heads: 4, kv_heads: 2, vocab: 256}"


class Scraper(Prometheus):
    every = f"{EVERY}s"


class Scene(Live, LiveGpus):
    """The cluster of Live, with another worker, and the GPUs of LiveGpus."""

    def train(self, spec, name, steps, *settings, rate=1e-3):
        """Submits a job that trains on a text. Returns the job's id."""
        adamw = f"{{adamw: {{learning_rate: {rate}}}, schedule: {{cosine: {{warmup_steps: 100}}}}}}"
        settings = [f"name={name}", f"checkpoint.directory=runs/{name}", f"steps={steps}", TEXT,
                    f"optimizer={adamw}", "validation={every_steps: 50, batches: 1}", *settings]
        words = [word for setting in settings for word in ("--set", setting)]
        return json.loads(self.trainyard("submit", "-", "-o", "jsonl", *words, stdin=spec))["id"]

    def start_all(self):
        """Starts all programs and submits all jobs. Returns the ids of the job with four ranks and
        of the jobs to compare."""
        self.environment = {
            "HOME": str(self.directory / "home"),
            "FAKE_NVML": str(self.directory / "nvml.json"),
            "LD_LIBRARY_PATH": str(BIN.parent / "tests/fake_nvml"),
        }
        self.addCleanup(self.kill_ranks)  # A killed worker leaves its ranks.
        self.play_gpus(0)
        bible = shutil.which("bible", path=os.environ["PATH"] + ":/usr/games")
        text = subprocess.check_output([bible, "-f", "gen1:1-rev22:21"])
        (self.directory / "corpus.txt").write_bytes(text)
        pages, _ = self.start_cluster()
        pages.append(self.start_machine("w4", 2)[1]["metrics"])
        controller, *workers = map(page, pages)
        self.prometheus = Scraper(self, "prometheus.yml", controller, workers)
        self.prometheus.await_up(5)
        self.begin_time = int(time.time())
        for _ in range(2):  # Prometheus sees no increase in the first value of a series.
            short = self.submit(20)
            until(lambda: "SUCCEEDED" in self.lines("get", short)[0]["state"], "a short job's end")
            time.sleep(EVERY)
        one = self.train(LONG, "moe", 6000, "checkpoint.every_steps=100", rate=2e-3)
        others = [
            self.train(RECIPE, f"lr-{rate}", 2500, LARGER, "checkpoint.every_steps=250", rate=rate)
            for rate in ("3e-4", "1e-3", "3e-3", "1e-2")
        ]
        # Jobs prefer GPUs, so the GPUs come when all jobs have their devices.
        workers.append(page(self.start_machine("gpus", "cuda")[1]["metrics"]))
        self.prometheus.set_targets("workers", workers)
        self.train(RECIPE, "wide", 100, "devices=8", "batch.global=32")  # Waits for all CPU ranks.
        return one, others

    def play_gpus(self, seconds):
        """The GPUs become warm, and at times GPU 0 is held down for its power."""
        gpus = [gpu(0), gpu(1)]
        for index, each in enumerate(gpus):
            load = 0.9 + 0.06 * math.sin(seconds / (23 + 14 * index))
            held = index == 0 and seconds % 120 > 70
            each["utilization"] = round(100 * load)
            each["power"] = round(700_000 * load) - 40_000 * index
            each["temperature"] = round(66 - 22 * math.exp(-seconds / 150)) - 3 * index
            each["sm_clock"] = round(1980 - 90 * load) - 60 * held
            each["memory_used"] = 61_000_000_000 + 3_000_000_000 * index
            each["clock_event_reasons"] = 4 * held
        xids = [{"gpu": 1, "xid": 31}]
        self.play({"driver": "580.65.06", "cuda": 13000, "gpus": gpus, "xids": xids})

    def go_on(self, seconds, job):
        """A rank of the job is killed before the half of the time, a worker in the last third."""
        begin, to_kill = time.monotonic(), {0.4: self.kill_rank, 0.7: lambda _: self.spare.kill()}
        while (past := time.monotonic() - begin) < seconds:
            self.play_gpus(past)
            self.lines("get", job)
            self.lines("list")
            for share in [each for each in to_kill if past > each * seconds]:
                to_kill.pop(share)(job)
            time.sleep(1)

    def kill_rank(self, job):
        trainers = [each for each in ranks(self.directory) if each.job == job]
        send(trainers[-1].pid, signal.SIGKILL)

    def kill_ranks(self):
        for each in ranks(self.directory):
            send(each.pid, signal.SIGKILL)


def draw_boards(source, one, others, directory):
    directory.mkdir(parents=True, exist_ok=True)
    with browse.Browser() as browser, tempfile.TemporaryDirectory() as scratch:
        drawn = pathlib.Path(scratch, "board.html")
        for path in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json")):
            board = json.loads(path.read_text(encoding="utf-8"))
            jobs = others if board["uid"] == "trainyard-compare" else [one]
            source.variables |= {"job_id": "|".join(jobs), "rank": ".*"}
            text = draw.page(board, source, {"job_id": " + ".join(jobs), "rank": "All"})
            drawn.write_text(text, encoding="utf-8")
            picture = directory / (path.stem.replace("trainyard", "board") + ".png")
            picture.write_bytes(browser.look(drawn.as_uri(), (WIDTH, 400), True, 9999))
            subprocess.run(["pngquant", "--force", "--strip", "--ext=.png", picture], check=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", nargs="?", default=ROOT / "docs/images", type=pathlib.Path)
    parser.add_argument("--minutes", default=9, type=float)
    options = parser.parse_args()
    subprocess.run([ROOT / "scripts/install_deps.sh", *TOOLS], check=True)
    scene = Scene("start_all")
    try:
        scene.setUp()
        one, others = scene.start_all()
        scene.go_on(60 * options.minutes, one)
        now = int(time.time())
        source = draw.Source(scene.prometheus.address, scene.begin_time, now, EVERY)
        draw_boards(source, one, others, options.directory)
    finally:
        scene.doCleanups()


if __name__ == "__main__":
    main()
