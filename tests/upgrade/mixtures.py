"""What people do with a cluster every day, while controller, worker and command line are of two releases. `mixture` is a
generator: it yields the name of what it has just shown, and raises AssertionError where that does not hold."""

from cluster import wait_until

# Steps of a job that is meant to outlast what is done to it. It is cancelled then.
ENDLESS = 10_000_000


def check_history(service, release, job_id, last):
    """Every step once, up to `last`, each with a loss."""
    steps = service.lines(release, "steps", job_id)
    numbers = [record["step"] for record in steps]
    assert numbers == list(range(1, last + 1)), f"the history of {job_id} has {len(numbers)} records up to {numbers[-1:]}; wanted 1 to {last}"
    assert all(record["loss"] > 0 for record in steps), f"a step of {job_id} has no loss"
    return steps


def get_in(service, cli):
    if service.tls:
        said = service.trainyard(cli, "login", "127.0.0.1:7070", stdin=service.admin)
        assert "alice: admin" in said, said
    assert "admin" in service.trainyard(cli, "whoami")


def use(service, cli, recipes):
    """Everything that people do with a cluster every day."""
    get_in(service, cli)
    name = f"by-{cli}"
    job_id = service.submit(cli, recipes, name, steps=30)
    job = service.wait_for_end(cli, job_id)
    assert job["state"] == "JOB_STATE_SUCCEEDED" and job["restarts"] == 0, job
    check_history(service, cli, job_id, 30)
    assert [c["step"] for c in job["checkpoints"]] == [20, 30], job["checkpoints"]
    assert "SUCCEEDED" in service.trainyard(cli, "watch", job_id)
    assert job_id in service.trainyard(cli, "list")
    assert service.trainyard(cli, "logs", job_id).strip(), "no line of a log"
    events = {event["type"] for event in service.lines(cli, "events", job_id)}
    assert {"EVENT_TYPE_SUBMITTED", "EVENT_TYPE_RUNNING", "EVENT_TYPE_CHECKPOINTED", "EVENT_TYPE_FINISHED"} <= events, events
    worker, = service.lines(cli, "workers")
    assert worker["state"] == "WORKER_STATE_READY" and len(worker["devices"]) == 2, worker
    service.trainyard(cli, "checkpoint", "verify", f"runs/{name}")
    refused = service.command(cli, "submit", recipes / "quickstart.yaml", "--set", "model.overrides.heads=7")
    assert refused.returncode == 1 and "heads" in refused.stderr, f"a spec that is wrong: {refused}"
    endless = service.submit(cli, recipes, f"cancelled-by-{cli}", steps=ENDLESS)
    service.wait_for_step(cli, endless, 5)
    service.trainyard(cli, "cancel", endless)
    assert service.wait_for_end(cli, endless)["state"] == "JOB_STATE_CANCELLED"
    wait_until(lambda: not service.ranks(), 30, "the end of the cancelled job's ranks")


def check_pages(service):
    pages = service.page(9464), service.page(9465)
    for page, metric in zip(pages, ("trainyard_jobs", "trainyard_device_info")):
        assert metric in page, f"a metrics page has no {metric}"


def mixture(service, controller, worker, old, new):
    """Both command lines with this controller and this worker."""
    service.start_controller(controller)
    service.start_worker(worker)
    for cli in (old, new):
        # Jobs that the last release knows must work everywhere, so the recipe is that release's.
        use(service, cli, old.recipes)
        yield f"command line {cli}"
    check_pages(service)
    yield "metrics pages"
