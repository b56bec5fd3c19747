"""Records the files and socket lines of a release, which every later release has to read.

    record.py --release DIRECTORY --into DIRECTORY

The release's own programs write all of it: a job of two ranks, whose controller is killed so that reports stay on the
worker's disk, and a trainer that talks to this program. scripts/upgrade.sh --record runs this."""

import argparse
import json
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "chaos"))

import isolation
from cluster import wait_until
from mixtures import get_in
from service import Service
from upgrade import release as release_of

LINES = 3  # Of a file that has a line for each step.
SPOOLS = ["steps", "checkpoints", "rendezvous"]
WHOLE = ["config.json", "launch.json", "supervisor.json", "exit_report.json", "trainer_exit.json", "ready"]


def head(path):
    return "".join(path.read_text().splitlines(keepends=True)[:LINES])


def record_rank(directory, into):
    """The state of a rank that ended while its controller was away."""
    for name in WHOLE:
        shutil.copy(directory / name, into / name)
    for name in SPOOLS:
        first = min(directory.glob(f"{name}.*"), key=lambda path: int(path.suffix[1:]))
        (into / f"{name}.1").write_text(head(first))


def record_checkpoint(directory, into):
    epoch = directory / "epoch-1"
    manifest = max(epoch.glob("step-*/manifest.json"), key=lambda path: int(path.parent.name.split("-")[1]))
    shutil.copy(directory / "owner.json", into / "owner.json")
    shutil.copy(epoch / "lineage.json", into / "lineage.json")
    shutil.copy(manifest, into / "manifest.json")
    (into / "steps.jsonl").write_text(head(epoch / "steps.jsonl"))


def record_store(path, into):
    """What the store holds of the only job, as text."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as store:
        (facts, body), = store.execute("SELECT facts, body FROM jobs").fetchall()
    (into / "facts.json").write_text(facts + "\n")
    (into / "job.json").write_text(body + "\n")


def record_socket(release, directory, config, into):
    """What a trainer says to its daemon: this program, which acknowledges everything. One line of each type."""
    own = directory / "own"
    own.mkdir()
    config["job"] |= {"devices": 1, "steps": 20, "checkpoint": {"directory": str(own / "run"), "every_steps": 10}}
    config["rank"] |= {"world": 1, "rank": 0, "socket": str(own / "socket"), "exit_report": str(own / "exit.json"), "claimed": False,
                       "recorded_step": 0, "recorded_epoch": 0, "history_after": 0}
    (own / "config.json").write_text(json.dumps(config))
    found = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(own / "socket"))
        listener.listen(1)
        listener.settimeout(60)
        trainer = subprocess.Popen([release.programs / "trainyard-trainer", own / "config.json"], cwd=directory,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            connection, _ = listener.accept()
            connection.settimeout(60)
            with connection, connection.makefile("r") as lines:
                for line in lines:
                    message = json.loads(line)
                    found.setdefault(message["type"], line)
                    if "sequence" in message:
                        connection.sendall(json.dumps({"type": "ack", "up_to": message["sequence"]}).encode() + b"\n")
            assert trainer.wait(60) == 0, f"the trainer ended with code {trainer.returncode}"
        finally:
            trainer.kill()
            trainer.wait()
    (into / "socket.jsonl").write_text("".join(found.values()))


def record(release, directory, into):
    service = Service(directory, b"In the beginning was the word. " * 400, tls=False)
    try:
        service.start_controller(release)
        service.start_worker(release)
        get_in(service, release)
        job_id = service.submit(release, release.recipes, "recorded", steps=400, model__overrides__layers=1)
        service.wait_for_step(release, job_id, 20)
        service.controller.end(signal.SIGKILL)
        record_store(directory / "controller/store.db", into)
        rank = directory / f"worker/ranks/{job_id}.1.0"
        wait_until((rank / "exit_report.json").exists, 60, "the end of rank 0")
        record_rank(rank, into)
        record_checkpoint(directory / "runs/recorded", into)
        record_socket(release, directory, json.loads((rank / "config.json").read_text()), into)
    finally:
        service.end()
    for path in into.iterdir():  # Where it was made says nothing.
        if path.name != "manifest.json":
            path.write_text(path.read_text().replace(str(directory), "/service").replace(str(release.programs), "/programs"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", type=pathlib.Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--into", type=pathlib.Path, required=True, metavar="DIRECTORY")
    options = parser.parse_args()
    release = release_of("old", options.release.resolve())
    isolation.enter()
    with tempfile.TemporaryDirectory(prefix="trainyard-record-") as scratch:
        recorded = pathlib.Path(scratch) / "recorded"
        recorded.mkdir()
        service = pathlib.Path(scratch) / "service"
        service.mkdir()
        record(release, service, recorded)
        shutil.rmtree(options.into, ignore_errors=True)
        shutil.copytree(recorded, options.into)
    print(f"recorded {len(list(options.into.iterdir()))} files of the release in {options.into}")


if __name__ == "__main__":
    main()
