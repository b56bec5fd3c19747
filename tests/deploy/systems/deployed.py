"""What the tests of deploy/ have in common: a job that is drained and goes on, seen through the command line alone."""
import json
import re
import subprocess
import time

SPEC = """
name: deployed
model: {preset: llama3-8b, overrides: {layers: 2, hidden: 64, ffn: 128, heads: 4, kv_heads: 2, vocab: 256, max_seq: 32}}
precision: F32
batch: {global: 4, micro: 1, sequence: 32}
data: {synthetic: {}}
optimizer: {adamw: {learning_rate: 1.0e-3}}
steps: STEPS
checkpoint: {directory: runs/deployed, every_steps: 100, keep: 3}
devices: RANKS
"""

WITHOUT_END = 10_000_000  # How long a test takes must not decide whether its job is still there to be drained.


def until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.1)
    return value


class Cluster:
    """`command` is what runs `trainyard` where the cluster's user is: a list of words."""

    def __init__(self, command, environment=None):
        self.command, self.environment = command, environment

    def __call__(self, *words, stdin="", check=True, seconds=60):
        ran = subprocess.run([*self.command, *words], input=stdin, capture_output=True, text=True, timeout=seconds, env=self.environment,
                             check=False)
        assert not check or ran.returncode == 0, f"{' '.join(words)}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout if check else ran

    def submit(self, ranks, steps=WITHOUT_END, directory="runs/deployed"):
        spec = SPEC.replace("STEPS", str(steps)).replace("RANKS", str(ranks)).replace("runs/deployed", directory)
        return self("submit", "-", "-q", stdin=spec).split()[0]

    def job(self, job):
        return json.loads(self("get", job, "-o", "json"))

    def state(self, job):
        return self.job(job)["state"].removeprefix("JOB_STATE_")

    def step(self, job):
        return int(self.job(job).get("progress", {}).get("step", 0))

    def workers(self):
        """By host name, of those that are there."""
        return {worker["hostname"]: worker["id"] for worker in json.loads(self("workers", "-o", "json"))["workers"]
                if worker["state"] == "WORKER_STATE_READY"}

    def runs_beyond(self, job, step, seconds=60):
        until(lambda: self.step(job) > step, f"step {step} of {job}", seconds)

    def last_checkpoint(self, job):
        return max((int(checkpoint["step"]) for checkpoint in self.job(job).get("checkpoints", [])), default=0)

    def has_drained(self, job):
        """The job stands at a checkpoint of its last step, and the drain has cost no restart."""
        until(lambda: self.state(job) in ("QUEUED", "RECOVERING"), f"{job} to wait for workers")
        step, checkpoint = self.step(job), self.last_checkpoint(job)
        assert step == checkpoint and step > 0, f"the drain left step {step} and a checkpoint of step {checkpoint}"
        assert not self.job(job).get("restarts_without_progress"), self.job(job)
        return step

    def has_every_step_once(self, job, steps):
        """To be asked at the end."""
        records = [json.loads(line) for line in self("steps", job, "-o", "jsonl", seconds=120).splitlines()]
        assert [record["step"] for record in records] == list(range(1, steps + 1)), f"{len(records)} records of {steps} steps"
        repeated = [event for event in self("events", job).splitlines() if re.search("repeat", event)]
        assert not repeated, repeated

    def ends(self, job, ranks):
        """Cancels the job, which has every step once. Another one then runs to its own end."""
        self("cancel", job)
        until(lambda: self.state(job) == "CANCELLED", f"{job} to be cancelled")
        self.has_every_step_once(job, self.step(job))
        last = self.submit(ranks, steps=150, directory="runs/last")
        ran = self("watch", last, "-q", check=False, seconds=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr + self("events", last)
        self.has_every_step_once(last, 150)


def report(what, seconds):
    """A figure for people. Tests assert no times."""
    print(f"figure: {what} after {seconds:.2f} s", flush=True)
