"""A controller and a worker daemon whose programs come from two releases, and the command line of either.

Each test has a network namespace of its own (tests/chaos/isolation.py), so the ports are fixed and a part that is replaced
comes back at the same address."""

import dataclasses
import json
import pathlib
import select
import signal
import subprocess
import urllib.request

import processes
from cluster import wait_until

PORT, CONTROLLER_PAGE, WORKER_PAGE = 7070, 9464, 9465
ADDRESS = f"127.0.0.1:{PORT}"
TERMINAL = {"JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"}
START_SECONDS = 60  # A worker that starts measures its processor.


@dataclasses.dataclass(frozen=True)
class Release:
    name: str                # "old" or "new"
    programs: pathlib.Path
    recipes: pathlib.Path

    def __str__(self):
        return self.name


class Part:
    """One program, started again with another release."""

    def __init__(self, service, name):
        self.service, self.name = service, name
        self.process, self.release = None, None
        self.log = service.directory / f"{name}.log"

    def start(self, release, *words):
        assert self.process is None, f"{self.name} runs already"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([release.programs / words[0], *words[1:]], cwd=self.service.directory,
                                            env=self.service.environment(), stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        self.release = release
        readable, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if readable else ""
        if not line.startswith("ready "):
            code = self.end(signal.SIGKILL)
            raise AssertionError(f"the {release} {self.name} did not get ready (exit code {code}): {self.last_words()}")

    def last_words(self):
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-3:])

    def end(self, number=signal.SIGTERM):
        """The exit code."""
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the {self.release} {self.name} did not end within 60 s of signal {number}") from None
        finally:
            process.stdout.close()


class Service:
    """`tls`: opened to a network by init, login and join. Otherwise on loopback, with the tokens of loopback."""

    def __init__(self, directory: pathlib.Path, corpus: bytes, tls: bool):
        self.directory, self.tls = directory, tls
        for name in ("home", "runs"):
            (directory / name).mkdir()
        (directory / "corpus.txt").write_bytes(corpus)
        self.controller, self.worker = Part(self, "controller"), Part(self, "worker")
        self.joined = False

    def environment(self):
        return {"HOME": str(self.directory / "home"), "TRAINYARD_CONTROLLER": ADDRESS, "PATH": "/usr/bin:/bin"}

    # Parts.

    def tool(self, release, *words):
        """A command of the controller's owner; its output."""
        done = subprocess.run([release.programs / "trainyard-controller", "--state", "controller", *words], cwd=self.directory,
                              env=self.environment(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{release} trainyard-controller {' '.join(words)}: {done.stderr}"
        return done.stdout

    def start_controller(self, release, *words):
        if self.tls and not (self.directory / "controller/authority").exists():
            self.tool(release, "init", "--host", "127.0.0.1")
            self.admin = self.tool(release, "token", "--name", "alice", "--role", "admin")
        self.controller.start(release, "trainyard-controller", "--state", "controller", "--metrics-listen",
                              f"127.0.0.1:{CONTROLLER_PAGE}", "--listen", f"0.0.0.0:{PORT}" if self.tls else ADDRESS, *words)

    def start_worker(self, release):
        """One with two devices."""
        joining = ["--join", "rack.token"] if self.tls else []
        if self.tls and not self.joined:
            token = self.tool(self.controller.release, "token", "--name", "rack", "--role", "joiner")
            path = self.directory / "rack.token"
            path.touch(mode=0o600)
            path.write_text(token)
            self.joined = True
        self.worker.start(release, "trainyard-worker", "--state", "worker", "--devices", "2", "--cores", "1", "--root", ".",
                          "--metrics-listen", f"127.0.0.1:{WORKER_PAGE}", "--detach", "600", "--drain-timeout", "30", *joining)

    def replace_controller(self, release, *words):
        code = self.controller.end()
        assert code == 0, f"the {self.controller.release} controller ended with code {code} on SIGTERM"
        self.start_controller(release, *words)

    def replace_worker(self, release, number=signal.SIGUSR2):
        """SIGUSR2 hands the ranks over; SIGTERM lets them checkpoint and end."""
        code = self.worker.end(number)
        assert code == 0, f"the {self.worker.release} worker ended with code {code} on signal {number}"
        self.start_worker(release)

    def end(self):
        """Ends all of it; what was wrong with that."""
        problems = []
        for part in (self.worker, self.controller):
            if part.process is not None:
                try:
                    if (code := part.end()) != 0:
                        problems.append(f"the {part.release} {part.name} ended with code {code}: {part.last_words()}")
                except AssertionError as failure:
                    problems.append(str(failure))
        for rank in self.ranks():
            problems.append(f"{rank.program} of rank {rank.rank} (process {rank.pid}) was left running")
            processes.kill(rank.pid)
        return problems

    # What is seen of it.

    def ranks(self):
        return processes.ranks(self.directory)

    def command(self, release, *words, stdin=""):
        return subprocess.run([release.programs / "trainyard", *map(str, words)], cwd=self.directory, env=self.environment(),
                              input=stdin, capture_output=True, text=True, timeout=60)

    def trainyard(self, release, *words, stdin=""):
        done = self.command(release, *words, stdin=stdin)
        assert done.returncode == 0, (f"{release} trainyard {' '.join(map(str, words))}: exit code {done.returncode}, "
                                      f"{done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def lines(self, release, *words):
        return [json.loads(line) for line in self.trainyard(release, *words, "-o", "jsonl").splitlines()]

    def job(self, release, job_id):
        return self.lines(release, "get", job_id)[0]

    def wait_for(self, release, job_id, condition, what, seconds=90):
        """The job, once `condition` holds of it."""
        def look():
            job = self.job(release, job_id)
            if condition(job):
                return job
            assert job["state"] not in TERMINAL, f"waited for {what}, but {job_id} is {job['state']}: {job['state_reason']}"
            return None
        return wait_until(look, seconds, f"{what} of {job_id}", 0.1)

    def wait_for_step(self, release, job_id, step, seconds=90):
        return self.wait_for(release, job_id, lambda job: job.get("progress", {}).get("step", 0) >= step, f"step {step}", seconds)

    def wait_for_end(self, release, job_id, seconds=90):
        return self.wait_for(release, job_id, lambda job: job["state"] in TERMINAL, "the end", seconds)

    def submit(self, release, recipes, name, **more):
        """The recipe of the quickstart, made small. `more`: fields of the spec, with __ for a dot."""
        fields = {"name": name, "data.text.path": "corpus.txt", "checkpoint.directory": f"runs/{name}", "checkpoint.every_steps": 10,
                  "model.overrides.layers": 2, "model.overrides.hidden": 32, "model.overrides.ffn": 96, "model.overrides.heads": 4,
                  "model.overrides.kv_heads": 2, "batch.sequence": 32, "batch.global": 4, "batch.micro": 2,
                  "optimizer.schedule.cosine.warmup_steps": 5, "validation.every_steps": 20, "validation.batches": 1}
        fields |= {field.replace("__", "."): value for field, value in more.items()}
        sets = [word for field, value in fields.items() for word in ("--set", f"{field}={value}")]
        return self.lines(release, "submit", recipes / "quickstart.yaml", *sets)[0]["id"]

    def page(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
            return page.read().decode()
