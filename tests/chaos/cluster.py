"""A real controller and real worker daemons, each a machine of its own with an address, a clock and a state
directory, and one directory that all of them share for checkpoints."""

import dataclasses
import json
import pathlib
import shutil
import signal
import subprocess
import time

import isolation
import network
import processes
import wall_clock

CONTROLLER_PORT = 7070
CALL_PERIOD = 0.2  # Seconds between calls of the command line in a wait.
MOUNTED = {"controller": 96, "runs/small": 48}  # Disks of their own: how many MiB.


def wait_until(condition, seconds, what, period=0.02):
    """The first true value of `condition`, looked at once a period."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(period)
    return value


class Part:
    """A controller or a worker daemon: a program that is started again after faults."""

    def __init__(self, cluster, name, machine, words):
        self.cluster, self.name, self.machine = cluster, name, machine
        self.state = cluster.directory / name
        self.clock = wall_clock.Clock(cluster.directory / f"{name}.clock")
        self.words = [*machine.enter, "env", f"LD_PRELOAD={cluster.shim}", f"CHAOS_CLOCK={self.clock.path}",
                      cluster.binaries / words[0], "--state", self.state, *words[1:]]
        self.process = None
        self.wanted = False  # Whether its end would be a surprise.

    def start(self):
        assert not self.running(), f"{self.name} runs already"
        with open(self.cluster.directory / "logs" / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen([str(word) for word in self.words], cwd=self.cluster.directory,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wanted = True

    def running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.wanted = False
        self.process.kill()
        self.process.wait()

    def end(self):
        """In order: an exit code of 0, or what was wrong."""
        self.wanted = False
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(40)
            return [] if code == 0 else [f"{self.name} ended with code {code} on SIGTERM"]
        except subprocess.TimeoutExpired:
            self.kill()
            return [f"{self.name} did not end within 40 s of SIGTERM"]


class Worker(Part):
    def __init__(self, cluster, name, machine, devices):
        trainer = cluster.directory / f"{name}-trainer"
        super().__init__(cluster, name, machine, [
            "trainyard-worker", "--controller", f"{cluster.controller_address}:{CONTROLLER_PORT}", "--join", cluster.join_file,
            "--devices", devices, "--cores", "0.5", "--root", cluster.directory, "--metrics-listen", "127.0.0.1:0",
            "--patience", "100", "--detach", "600", "--drain-timeout", "20", "--trainer", trainer])
        # A worker gives its trainers an environment of their own, so the clock has to be named here.
        trainer.write_text(f'#!/bin/sh\nexec env LD_PRELOAD={cluster.shim} CHAOS_CLOCK={self.clock.path} '
                           f'{cluster.binaries}/trainyard-trainer "$@"\n')
        trainer.chmod(0o755)
        self.gone = False  # For ever: the machine burnt down.

    def ranks(self):
        return [rank for rank in self.cluster.ranks() if rank.state_directory == str(self.state)]

    def lose_power(self):
        """All of the machine's processes end, and nobody is told."""
        self.machine.cut()
        self.kill()
        while ranks := self.ranks():  # What is started meanwhile is seen by the next look.
            for rank in ranks:
                processes.kill(rank.pid)
            time.sleep(0.01)


@dataclasses.dataclass
class Answer:
    code: int
    output: str
    errors: str


class Cluster:
    """`workers` is the number of devices of each."""

    def __init__(self, directory: pathlib.Path, binaries: pathlib.Path, workers, store_megabytes):
        self.directory, self.binaries = directory, binaries
        for name in ("logs", "runs", "specs"):
            (directory / name).mkdir()
        self.shim = directory / "clock_shim.so"
        wall_clock.build_shim(self.shim)
        for name, megabytes in (MOUNTED | {"controller": store_megabytes}).items():
            isolation.mount_memory(directory / name, megabytes)
        self.network = network.Network()
        machine = self.network.add("controller")
        self.controller_address = machine.address
        self.controller = Part(self, "controller", machine, [
            "trainyard-controller", "--listen", f"{machine.address}:{CONTROLLER_PORT}",
            "--metrics-listen", "127.0.0.1:0"])
        self.begin_access()
        self.controller.start()
        self.workers = []
        for devices in workers:
            self.add_worker(devices)
        wait_until(lambda: self.ready_workers() >= len(workers), 30, "the workers' registration",
                   CALL_PERIOD)

    def begin_access(self):
        """An authority, a token for the command line, and one by which all workers join."""
        tool = [self.binaries / "trainyard-controller", "--state", self.controller.state]
        subprocess.run([*tool, "init", "--host", self.controller_address], check=True, stdout=subprocess.DEVNULL)
        self.token_file, self.join_file = (self.token(tool, role) for role in ("operator", "joiner"))
        self.authority_file = self.controller.state / "authority" / "authority.pem"

    def token(self, tool, role):
        path = self.directory / f"{role}.token"
        made = subprocess.run([*tool, "token", "--name", role, "--role", role, *(["--uses", "1000"] if role == "joiner" else [])],
                              check=True, capture_output=True, text=True)
        path.touch(mode=0o600)
        path.write_text(made.stdout)
        return path

    def add_worker(self, devices):
        name = f"w{len(self.workers)}"
        worker = Worker(self, name, self.network.add(name), devices)
        worker.devices = devices
        worker.start()
        self.workers.append(worker)
        return worker

    def ranks(self):
        return processes.ranks(self.directory)

    def trainers(self):
        return [rank for rank in self.ranks() if rank.program == "trainer"]

    def ready_workers(self):
        answer = self.trainyard("workers", "-o", "jsonl")
        return answer.output.count("WORKER_STATE_READY") if answer.code == 0 else 0

    def trainyard(self, *words, seconds=20):
        try:
            done = subprocess.run(
                [self.binaries / "trainyard", *map(str, words)], cwd=self.directory, capture_output=True, text=True,
                timeout=seconds, env={"TRAINYARD_CONTROLLER": f"{self.controller_address}:{CONTROLLER_PORT}",
                                      "TRAINYARD_TOKEN_FILE": self.token_file, "TRAINYARD_AUTHORITY": self.authority_file})
            return Answer(done.returncode, done.stdout, done.stderr)
        except subprocess.TimeoutExpired:
            return Answer(-1, "", f"no answer within {seconds} s")

    def lines(self, *words):
        """The objects that a verb prints, or an assertion with what it said instead."""
        answer = self.trainyard(*words, "-o", "jsonl", seconds=60)
        assert answer.code == 0, f"trainyard {' '.join(map(str, words))}: {answer}"
        return [json.loads(line) for line in answer.output.splitlines()]

    def submit(self, kind, name, directory):
        spec = self.directory / "specs" / f"{name}.yaml"
        spec.write_text(kind.text(name, directory))
        return self.trainyard("submit", spec)

    def jobs(self):
        """id -> job, of all that the controller knows; None while it does not answer."""
        answer = self.trainyard("list", "-o", "jsonl")
        if answer.code != 0:
            return None
        return {job["id"]: job for job in map(json.loads, answer.output.splitlines())}

    def surprises(self):
        return [f"{part.name} ended by itself with code {part.process.returncode}; see logs/{part.name}.log"
                for part in [self.controller, *self.workers] if part.wanted and not part.running()]

    def end(self):
        """Ends everything in order; what was wrong with that."""
        problems = []
        for worker in self.workers:
            if worker.running():
                problems += worker.end()
        if self.controller.running():
            problems += self.controller.end()
        for rank in self.ranks():
            problems.append(f"{rank.program} {rank.job} epoch {rank.epoch} rank {rank.rank} (process {rank.pid}) was left "
                            f"running after the end of {pathlib.Path(rank.state_directory).name}")
            processes.kill(rank.pid)
        return problems

    def unmount(self):
        for name in MOUNTED:
            subprocess.run(["umount", "--lazy", self.directory / name], check=True)

    def keep(self):
        """Copies what lies in memory to the disk, where it outlives the namespace."""
        copies = {name: self.directory / f"{name}.copy" for name in MOUNTED}
        for name, copy in copies.items():
            shutil.copytree(self.directory / name, copy, ignore=shutil.ignore_patterns("ballast"))
        self.unmount()
        for name, copy in copies.items():
            (self.directory / name).rmdir()
            copy.rename(self.directory / name)

    def remove(self):
        self.unmount()
        shutil.rmtree(self.directory)
