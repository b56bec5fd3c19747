"""What a user of deploy/slurm/ may get wrong, and is told: a directory that not all nodes share, ports that are
taken, an authority that has expired, a worker whose certificate or token has expired or is missing."""
import contextlib
import socket

import past
from deployed import SPEC, until
from package import SOURCE

ALLOCATION = SOURCE / "deploy/slurm/trainyard-allocation.sbatch"
WORKERS = SOURCE / "deploy/slurm/trainyard-workers.sbatch"


@contextlib.contextmanager
def taken_port():
    with socket.create_server(("0.0.0.0", 0)) as server:
        yield str(server.getsockname()[1])


def said(slurm, log, job):
    """What a submission that cannot work has in its log."""
    ended = ("FAILED", "COMPLETED", "CANCELLED", "TIMEOUT")
    until(lambda: slurm.state(job) in ended, f"the end of {job}: {slurm.state(job)}")
    assert slurm.state(job) == "FAILED", slurm.state(job)
    return log.read_text(encoding="utf-8")


class Allocations:
    def __init__(self, slurm, shared):
        self.slurm, self.shared, self.spec = slurm, shared, shared / "spec.yaml"
        text = SPEC.replace("STEPS", "100").replace("RANKS", "2")
        self.spec.write_text(text, encoding="utf-8")

    def submit(self, name, *options, directory=None, words=(), **variables):
        self.log = self.shared / f"{name}.log"
        exported = ",".join(["ALL", *(f"{key}={value}" for key, value in variables.items())])
        return self.slurm.submit("--partition=odd", "--nodelist=n[12-13]", f"--export={exported}",
                                 f"--output={self.log}", *options, ALLOCATION, self.spec,
                                 directory or self.shared, "--devices=1", "--cores=1", *words)

    def said(self, job):
        return said(self.slurm, self.log, job)


def not_shared(allocations, elsewhere):
    text = allocations.said(allocations.submit("elsewhere", directory=elsewhere))
    [line] = [line for line in text.splitlines() if "trainyard-allocation:" in line]
    assert f"not on n13: {elsewhere} must lie on a file system that all nodes share" in line, text
    log = allocations.shared / "elsewhere-worker.log"
    hidden = elsewhere / "runs"
    hidden.mkdir()
    job = allocations.slurm.submit("--partition=odd", "--array=1", "--nodelist=n13",
                                   f"--output={log}", WORKERS, "127.0.0.1:1", allocations.spec,
                                   hidden)
    text = said(allocations.slurm, log, job)
    assert f"found none at {hidden} on n13" in text, text


def taken_ports(allocations):
    with taken_port() as port:
        text = allocations.said(allocations.submit("api", TRAINYARD_LISTEN=f"0.0.0.0:{port}"))
        assert f"cannot listen on 0.0.0.0:{port}: the port is taken" in text, text
        assert "--listen" in text, text
        page = f"0.0.0.0:{port}"
        text = allocations.said(allocations.submit("page", TRAINYARD_METRICS_LISTEN=page))
        assert f"cannot serve metrics at {page}" in text and "--metrics-listen" in text, text
        # The workers' pages: all workers end, and an allocation without workers does not wait.
        text = allocations.said(allocations.submit("workers", words=["--metrics-listen", page]))
        assert "all workers ended before the job" in text, text
        assert f"cannot serve metrics at {page}" in text, text


def expired_authority(allocations):
    job = allocations.submit("authority", "--hold")
    home = allocations.shared / f".trainyard-{job}"
    home.mkdir()
    past.authority(allocations.shared, home / "controller")
    allocations.slurm("scontrol", "release", job)
    text = allocations.said(job)
    assert "authority.pem: the certificate of 'Trainyard' expired after 20" in text, text
    assert f"move authority away in {home}/access" in text, text


def expired_worker(slurm, shared, address, old):
    """`old` is the token by which the worker of n11 joined."""
    certificate = shared / ".trainyard-workers/n11/controller/certificate.pem"

    def refused(name, join):
        log = shared / f"{name}.log"
        job = slurm.submit("--partition=odd", "--array=1", "--nodelist=n11", f"--output={log}", WORKERS, address, join,
                           shared, "--devices=1")
        text = said(slurm, log, job)
        assert "Give the worker --join FILE with the output of 'trainyard token create NAME" in text, text
        return text

    expired = f"{certificate}: the certificate of '"
    text = refused("expired", old)
    assert expired in text and "' expired after 20" in text and "does not know the token" in text, text
    text = refused("expired-no-token", shared / "nothing")
    assert expired in text and f"there is no {shared}/nothing" in text, text
    kept = certificate.read_bytes()
    certificate.unlink()
    text = refused("missing", old)
    assert f"no certificate at {certificate}; " in text and "does not know the token" in text, text
    text = refused("missing-no-token", shared / "nothing")
    assert f"no certificate at {certificate}; " in text, text
    assert f"cannot open {shared}/nothing: No such file" in text, text
    certificate.write_bytes(kept)


def bad_input(slurm, shared, elsewhere):
    allocations = Allocations(slurm, shared)
    not_shared(allocations, elsewhere)
    taken_ports(allocations)
    expired_authority(allocations)
