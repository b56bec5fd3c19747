"""What must hold while a cluster goes from one release to the next, and back. Each function is a generator: it yields the
name of what it has just shown, and raises AssertionError where that does not hold."""

import json
import signal
import sqlite3

import processes
from cluster import wait_until
from mixtures import ENDLESS, check_history, get_in


def rank_processes(service):
    return sorted((rank.program, rank.rank, rank.pid) for rank in service.ranks())


def undisturbed(service, cli, job_id, ranks, beyond):
    """The same processes train as before, and get further."""
    job = service.wait_for_step(cli, job_id, beyond)
    assert job["restarts"] == 0 and job["epoch"] == 1, f"{job['restarts']} restarts, epoch {job['epoch']}: {job['state_reason']}"
    assert rank_processes(service) == ranks, f"other ranks run: {rank_processes(service)} instead of {ranks}"
    return job["progress"]["step"]


def schema(service):
    with sqlite3.connect(f"file:{service.directory}/controller/store.db?mode=ro", uri=True) as store:
        return store.execute("PRAGMA user_version").fetchone()[0]


def begin_endless(service, release, recipes):
    """On one release alone; the job and its processes."""
    service.start_controller(release)
    service.start_worker(release)
    get_in(service, release)
    job_id = service.submit(release, recipes, "rolling", steps=ENDLESS)
    service.wait_for_step(release, job_id, 20)
    ranks = rank_processes(service)
    assert len(ranks) == 4, f"wanted two trainers, each below a supervisor, found {ranks}"
    return job_id, ranks


def finish_endless(service, cli, job_id):
    service.trainyard(cli, "cancel", job_id)
    job = service.wait_for_end(cli, job_id)
    assert job["restarts"] == 0, job
    check_history(service, cli, job_id, job["progress"]["step"])


def rolling(service, old, new):
    """An upgrade under a job, and the worker's way back; no rank is ended."""
    job_id, ranks = begin_endless(service, old, old.recipes)
    step = undisturbed(service, old, job_id, ranks, 30)
    assert service.controller.end() == 0
    before = schema(service)
    service.start_controller(new)
    step = undisturbed(service, old, job_id, ranks, step + 50)
    yield "the controller is replaced under a job"
    service.replace_worker(new)
    step = undisturbed(service, new, job_id, ranks, step + 50)
    yield "the worker is replaced, its old ranks go on"
    service.replace_worker(old)
    step = undisturbed(service, new, job_id, ranks, step + 50)
    yield "the worker is put back"
    service.replace_worker(new)
    undisturbed(service, new, job_id, ranks, step + 50)
    service.controller.end()
    after = schema(service)
    assert after >= before, f"the store's schema went from {before} to {after}"
    service.start_controller(new)
    finish_endless(service, new, job_id)
    yield f"the store's schema went from version {before} to {after}"


def worker_first(service, old, new):
    """The worker before the controller, whose store is left as kill -9 leaves it: nobody needs to know the right order."""
    job_id, ranks = begin_endless(service, old, old.recipes)
    service.replace_worker(new)
    step = undisturbed(service, old, job_id, ranks, 50)
    service.controller.end(signal.SIGKILL)
    service.start_controller(new)
    undisturbed(service, new, job_id, ranks, step + 50)
    finish_endless(service, new, job_id)
    yield "the worker is replaced before the controller, which was killed"


def way_back(service, old, new):
    """An upgrade of a worker is undone when the new release has started ranks already."""
    job_id, ranks = begin_endless(service, new, old.recipes)
    service.replace_worker(old)
    step = undisturbed(service, new, job_id, ranks, 50)
    yield "the old worker takes over the new one's ranks"
    service.replace_worker(new)
    undisturbed(service, new, job_id, ranks, step + 50)
    finish_endless(service, new, job_id)
    yield "and hands them back"


def stored(service, old, new):
    """A job that the old release has stored is run by the new one's trainers, with the same text."""
    job_id, _ = begin_endless(service, old, old.recipes)
    service.replace_controller(new)
    service.replace_worker(new)
    processes.kill(next(rank.pid for rank in service.ranks() if rank.program == "trainer"))
    reached = service.wait_for(new, job_id, lambda job: job["epoch"] == 2, "a second attempt")["progress"]["step"]
    service.wait_for_step(new, job_id, reached + 50)
    texts = [json.loads((service.directory / f"worker/ranks/{job_id}.{epoch}.0/config.json").read_text())["job"] for epoch in (1, 2)]
    assert texts[0] == texts[1], f"the new trainers were given another job: {texts[1]} in place of {texts[0]}"
    service.trainyard(new, "cancel", job_id)
    service.wait_for_end(new, job_id)
    yield f"a stored job (format {texts[0].get('format', 'none')}) is run by new trainers"


def resume(service, first, second):
    """A job of 400 steps, whose trainer is of the other release from some step after the 40th on."""
    newer = first if first.name == "new" else second
    service.start_controller(newer)
    service.start_worker(first)
    get_in(service, newer)
    recipes = (second if newer is first else first).recipes
    whole = service.submit(newer, recipes, "whole", steps=400)
    assert service.wait_for_end(newer, whole)["state"] == "JOB_STATE_SUCCEEDED"
    job_id = service.submit(newer, recipes, "divided", steps=400)
    service.wait_for_step(newer, job_id, 40)
    service.replace_worker(second, signal.SIGTERM)
    job = service.wait_for_end(newer, job_id)
    assert job["state"] == "JOB_STATE_SUCCEEDED" and job["epoch"] == 2, job
    steps = [check_history(service, newer, each, 400) for each in (whole, job_id)]
    boundary = next(record["step"] for record in steps[1] if record["epoch"] == 2)
    assert boundary > 40, f"the second trainer began again at step {boundary}"
    # Releases may differ in the last bits. Lost moments of the optimizer, or another order of the data, differ by more.
    for a, b in zip(*steps):
        assert abs(a["loss"] - b["loss"]) < 0.02 * a["loss"], f"step {a['step']}: loss {b['loss']}, undisturbed {a['loss']}"
    digests = {f"{cli} of {name}": service.trainyard(cli, "checkpoint", "digest", f"runs/{name}").split()[0]
               for cli in (first, second) for name in ("whole", "divided")}
    for name in ("whole", "divided"):
        of = [digests[f"{cli} of {name}"] for cli in (first, second)]
        assert of[0] == of[1], f"the two releases read {name} differently: {digests}"
        service.trainyard(second, "checkpoint", "verify", f"runs/{name}")
    same = "to the bit" if len(set(digests.values())) == 1 else "within 2 % of the loss"
    yield f"resumes at step {boundary - 1}, as undisturbed {same}"


def downgrade(service, old, new):
    """The old controller on the new one's state directory works, or refuses and says what to do; nothing is lost."""
    service.directory.joinpath("backups").mkdir()
    backups = ["--backup-every", "1s", "--backup-directory", "backups"]
    service.start_controller(old, *backups)
    service.start_worker(old)
    get_in(service, old)
    job_id = service.submit(old, old.recipes, "rolling", steps=ENDLESS)
    step = service.wait_for_step(old, job_id, 20)["progress"]["step"]
    ranks = rank_processes(service)
    kept = lambda: sorted(path.name for path in (service.directory / "backups").glob("store-*.db"))
    known = set(kept())
    backup = wait_until(lambda: next((name for name in reversed(kept()) if name not in known), None), 30, "a backup of the job")
    service.replace_controller(new)
    later = service.submit(new, old.recipes, "later", steps=10)  # Queued: both devices are busy.
    service.controller.end()
    version = schema(service)
    try:
        service.start_controller(old)
        yield "the old controller serves the new one's store"
        step = undisturbed(service, old, job_id, ranks, step + 50)
    except AssertionError as failure:
        assert service.controller.process is None, failure
        assert f"schema version {version}" in str(failure) and "run the newer" in str(failure), failure
        yield "the old controller refuses the new one's store, and says what to do"
    else:
        service.controller.end()
    service.start_controller(new)
    assert service.job(new, later)["state"] == "JOB_STATE_QUEUED"
    step = undisturbed(service, new, job_id, ranks, step + 50)
    yield "the new controller goes on with it, nothing is lost"
    service.controller.end()
    service.tool(old, "--restore", f"backups/{backup}")
    service.start_controller(old)
    job = service.wait_for(old, job_id, lambda job: job["epoch"] > 1 and job["state"] == "JOB_STATE_RUNNING", "its new attempt")
    service.wait_for_step(old, job_id, step)
    service.trainyard(old, "cancel", job_id)
    check_history(service, old, job_id, service.wait_for_end(old, job_id)["progress"]["step"])
    yield "the old controller goes back to its last backup, and the job goes on"
