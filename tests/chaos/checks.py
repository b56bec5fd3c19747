"""What must hold of every job once the faults are over, each broken promise as a line of text."""

import json
import math
import pathlib

import jobs as specs
from cluster import wait_until

MAX_LISTED = 64  # Checkpoints of a job, by the API.


def outcome(job):
    if job["state"] != "JOB_STATE_SUCCEEDED":
        yield f"{job['state'].removeprefix('JOB_STATE_')} instead of SUCCEEDED: {job['state_reason']}"


def history(steps, kind, peace):
    """Of the job's records of steps."""
    found = [record["step"] for record in steps]
    if found != list(range(1, kind.steps + 1)):
        missing = sorted(set(range(1, kind.steps + 1)) - set(found))
        yield (f"the history has {len(set(found))} of {kind.steps} steps, {len(found) - len(set(found))} of them twice"
               + (f"; {len(missing)} are missing, from {missing[0]} to {missing[-1]}" if missing else ""))
    different = [step for step, loss in specs.losses(steps).items() if loss != peace.losses.get(step)]
    if different:
        yield (f"{len(different)} losses differ from the undisturbed run's, the first at step {different[0]}: "
               f"{specs.losses(steps)[different[0]]} instead of {peace.losses.get(different[0])}")
    validation = specs.validation_losses(steps)
    if validation != peace.validation:
        lost = sorted(set(peace.validation) - set(validation))
        yield (f"{len(validation)} validation losses instead of {len(peace.validation)}; those of steps {lost} are missing"
               if lost else "validation losses differ from the undisturbed run's")


def resumed_steps(steps, seen):
    """An attempt begins at the newest checkpoint that lay in the directory when it began, or later. `seen`: of the
    watcher. Of an attempt's records those stay that no later one repeated, so the first of these is where it began."""
    for epoch, began in sorted(seen.epochs.items())[1:]:
        there = max((step for (of, step), when in seen.commits.items() if of < epoch and when < began - 1), default=0)
        first = min((record["step"] for record in steps if record["epoch"] >= epoch), default=there + 1)
        if first <= there:
            yield f"epoch {epoch} began at step {first} although the checkpoint of step {there} was in the directory"


def checkpoints(cluster, job, kind, directory, peace):
    answer = cluster.trainyard("checkpoint", "digest", directory)
    digest = answer.output.split()[0] if answer.code == 0 else answer.errors.strip()
    if digest != peace.digest:
        yield f"the newest checkpoint's digest is {digest} instead of {peace.digest}"
    listed = [(pathlib.Path(c["path"]), c["epoch"], c["step"]) for c in job["checkpoints"]]
    wanted = min(kind.keep, math.ceil(kind.steps / kind.every), MAX_LISTED)
    if len(listed) < wanted:
        yield f"{len(listed)} checkpoints are listed instead of at least {wanted}"
    for path, epoch, step in listed:
        if not (path / "manifest.json").exists():
            yield f"the checkpoint of epoch {epoch}, step {step} is listed and does not exist"
    if listed and listed[-1][2] != kind.steps:
        yield f"the newest listed checkpoint is of step {listed[-1][2]} instead of {kind.steps}"
    manifests = sorted(directory.glob("epoch-*/step-*/manifest.json"), key=place)
    # With equal losses of every step: each sample was used once.
    position = json.loads(manifests[-1].read_text())["data_position"] if manifests else None
    if position != kind.steps * specs.BATCH:
        yield f"the newest checkpoint's data position is {position} instead of {kind.steps * specs.BATCH} samples"


def place(manifest):
    """(epoch, step) of a manifest's path."""
    return tuple(int(part.split("-")[1]) for part in manifest.parts[-3:-1])


def of_job(cluster, watcher, job, kind, peace):
    """All of one job."""
    directory = watcher.directories[job["id"]]
    problems = list(outcome(job))
    if not problems:  # Of one that failed nothing else can hold.
        steps = cluster.lines("steps", job["id"])
        problems += history(steps, kind, peace)
        problems += resumed_steps(steps, watcher.jobs[job["id"]])
        problems += checkpoints(cluster, job, kind, directory, peace)
    problems += watcher.problems(job["id"])
    return [f"{job['spec']['name']} ({job['id']}): {problem}" for problem in problems]


def of_the_list(submitted, jobs):
    """No job lost, none doubled. `submitted`: the ids that were acknowledged."""
    problems = [f"job {job_id} was acknowledged and is lost" for job_id in submitted if job_id not in jobs]
    names = sorted(job["spec"]["name"] for job in jobs.values())
    return problems + [f"job {name} is there twice" for name in sorted({n for n in names if names.count(n) > 1})]


def of_processes(cluster):
    """Once all jobs are over, none of their processes is left."""
    try:
        wait_until(lambda: not cluster.ranks(), 15, "the end of ranks")
    except AssertionError:
        return [f"15 s after the last job ended there is a {rank.program} of {rank.job}, epoch {rank.epoch}, rank {rank.rank}"
                + (", stopped" if rank.stopped else "") for rank in cluster.ranks()]
    return []
