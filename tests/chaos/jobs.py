"""The jobs that are disturbed, and the same jobs in peace: what every disturbed one must come out as."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

BATCH = 4  # Sequences a step.


@dataclasses.dataclass(frozen=True)
class Kind:
    """A spec but for name and directory: what is trained, which depends on nothing else."""
    name: str
    devices: int = 1
    parallelism: str = ""
    steps: int = 600
    every: int = 20       # Steps from a checkpoint to the next.
    validation: int = 50  # Steps likewise; 0: none.
    hidden: int = 32
    micro: int = 2
    keep: int = 2
    max_restarts: int = 100
    disk: str = ""        # Below the directory of all runs: "small" has a disk of its own, which may be full.

    def text(self, name, directory):
        lines = [
            f"name: {name}",
            f"model: {{preset: llama3-8b, overrides: {{layers: 2, hidden: {self.hidden}, ffn: {3 * self.hidden}, "
            "heads: 4, kv_heads: 2, vocab: 256, max_seq: 64}}",
            f"precision: F32\nbatch: {{global: {BATCH}, micro: {self.micro}, sequence: 64}}",
            "data: {synthetic: {}}\noptimizer: {adamw: {learning_rate: 3e-3}}",
            f"steps: {self.steps}\ndevices: {self.devices}\nseed: 7\nmax_restarts: {self.max_restarts}",
            f"parallelism: {{{self.parallelism}}}",
            f"checkpoint: {{directory: {directory}, every_steps: {self.every}, keep: {self.keep}}}"]
        if self.validation:
            lines.append(f"validation: {{every_steps: {self.validation}}}")
        return "\n".join(lines) + "\n"


LAYOUTS = [Kind("one", steps=900, validation=0, disk="small"), Kind("data2", 2, "zero: OPTIMIZER", disk="small"), Kind("tensor2", 2, "tensor: 2"),
           Kind("pipeline2", 2, "pipeline: 2"), Kind("full2", 2, "zero: FULL", every=10)]


@dataclasses.dataclass
class Undisturbed:
    digest: str
    losses: dict      # step -> loss
    validation: dict  # step -> validation loss
    seconds: float    # From its start to its end, side by side with the others of its run.
    stepping: float   # Of these, in steps.


def parse_steps(text):
    return [json.loads(line) for line in text.splitlines()]


def losses(steps):
    return {record["step"]: record["loss"] for record in steps}


def validation_losses(steps):
    return {record["step"]: record["validation_loss"] for record in steps if "validation_loss" in record}


PAUSES = ("data", "checkpoint", "validation")  # Phases that stand beside a step's seconds.


def stepping_seconds(steps):
    return sum(record["seconds"] + sum(record["phases"][pause] for pause in PAUSES) for record in steps)


def seconds_between(begin, end):
    """Of two of the service's time stamps."""
    import datetime
    return (datetime.datetime.fromisoformat(end.replace("Z", "+00:00"))
            - datetime.datetime.fromisoformat(begin.replace("Z", "+00:00"))).total_seconds()


class Peace:
    """A service of its own, `trainyard up`, that nobody disturbs. Its results are kept beside the programs
    for the next run with the same trainer: they depend on that and on the spec alone."""

    def __init__(self, binaries: pathlib.Path):
        self.binaries = binaries
        trainer = hashlib.sha256((binaries / "trainyard-trainer").read_bytes()).hexdigest()[:16]
        kept = binaries.parent / "chaos-undisturbed"
        if not os.access(binaries.parent, os.W_OK):
            self.temporary = tempfile.TemporaryDirectory(prefix="trainyard-chaos-undisturbed-")
            kept = pathlib.Path(self.temporary.name)
        self.kept = kept / trainer
        self.kept.mkdir(parents=True, exist_ok=True)

    def results(self, kinds, one_by_one=False, fresh=False):
        """kind -> Undisturbed. `one_by_one`: not side by side, so the result is the same whoever else is asked for."""
        trained = lambda kind: dataclasses.replace(kind, name="", keep=0, disk="").text("", "")
        form = [field.name for field in dataclasses.fields(Undisturbed)]
        beside = "" if one_by_one else "".join(map(trained, kinds))  # What its time depends on.
        key = lambda kind: hashlib.sha256(f"{form}{trained(kind)}{beside}".encode()).hexdigest()[:16]
        files = {kind: self.kept / f"{key(kind)}.json" for kind in kinds}
        missing = [kind for kind in kinds if fresh or not files[kind].exists()]
        for batch in [[kind] for kind in missing] if one_by_one else [missing]:
            if batch:
                for kind, result in self.train(batch).items():
                    with tempfile.NamedTemporaryFile("w", dir=self.kept, delete=False) as partial:
                        json.dump(dataclasses.asdict(result), partial)
                    pathlib.Path(partial.name).rename(files[kind])
        found = {}
        for kind, file in files.items():
            result = Undisturbed(**json.loads(file.read_text()))
            result.losses = {int(step): loss for step, loss in result.losses.items()}
            result.validation = {int(step): loss for step, loss in result.validation.items()}
            found[kind] = result
        return found

    def train(self, kinds):
        with tempfile.TemporaryDirectory(prefix="trainyard-peace-") as directory:
            devices = sum(kind.devices for kind in kinds)
            up = subprocess.Popen(
                [self.binaries / "trainyard", "up", "--workers", "1", "--devices-per-worker", str(max(devices, 2)),
                 "--state", "state", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"],
                cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                address = re.search(r"controller=(\S+)", up.stdout.readline())[1]
                run = lambda *words: subprocess.run(
                    [self.binaries / "trainyard", *words, "--controller", address], cwd=directory, check=True,
                    stdout=subprocess.PIPE, text=True).stdout
                ids = {}
                for kind in kinds:
                    (pathlib.Path(directory) / f"{kind.name}.yaml").write_text(kind.text(kind.name, f"runs/{kind.name}"))
                    ids[kind] = run("submit", f"{kind.name}.yaml").strip()
                found = {}
                for kind, job_id in ids.items():
                    run("watch", job_id)
                    job, steps = json.loads(run("get", job_id, "-o", "jsonl")), parse_steps(run("steps", job_id, "-o", "jsonl"))
                    assert job["restarts"] == 0 and len(steps) == kind.steps, f"{kind.name} was disturbed: {job}"
                    digest = subprocess.run([self.binaries / "trainyard", "checkpoint", "digest", f"runs/{kind.name}"],
                                            cwd=directory, check=True, stdout=subprocess.PIPE, text=True).stdout
                    found[kind] = Undisturbed(digest.split()[0], losses(steps), validation_losses(steps),
                                              seconds_between(job["start_time"], job["finish_time"]),
                                              stepping_seconds(steps))
                return found
            finally:
                up.send_signal(signal.SIGTERM)
                up.wait()
