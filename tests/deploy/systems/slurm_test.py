"""A real Slurm of thirteen nodes runs the scripts of deploy/slurm/ as they are shipped, at the same time: an allocation that has everything
and goes back to the queue at its time limit; those whose first node dies; an array of workers for a controller elsewhere, of which
one is cancelled and one loses its node; and what users get wrong."""
import concurrent.futures
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(TESTS / "chaos"))
import isolation  # noqa: E402
import past  # noqa: E402
from deployed import SPEC, Cluster, report, until  # noqa: E402
from network import OWN_ADDRESS, Network  # noqa: E402
from package import BIN, MADE, SOURCE, run  # noqa: E402
from slurm import Slurm  # noqa: E402
from slurm_bad_input import bad_input, expired_worker  # noqa: E402

SHIPPED = SOURCE / "deploy/slurm"
HOST = socket.gethostname()


def spec(path, steps, ranks):
    path.write_text(SPEC.replace("STEPS", str(steps)).replace("RANKS", str(ranks)), encoding="utf-8")
    return path


def left_over(*marks):
    """Programs of ours that run, with one of these in their command line."""
    ran = subprocess.run(["pgrep", "--list-full", "trainyard-"], capture_output=True, text=True, check=False)
    return [line for line in ran.stdout.splitlines() if any(str(mark) in line for mark in marks)]


class Reader:
    """What a user can still ask: the store that an allocation left."""

    def __init__(self, home, log):
        command = [BIN / "trainyard-controller", "--state", home / "controller", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
        with open(log, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        address = self.process.stdout.readline().split()[1].removeprefix("controller=")
        self.user = Cluster([BIN / "trainyard"], {"TRAINYARD_CONTROLLER": address, "HOME": "/",
                                                  "TRAINYARD_TOKEN_FILE": str(home / "controller/token")})

    def end(self):
        self.process.terminate()
        self.process.wait()


def allocation(slurm, shared):
    steps, log = 10_000_000, shared / "allocation.log"
    # The signal of the time limit, as Slurm sends it: it looks every half a minute.
    words = ["--nodes=2", "--time=1", "--signal=B:USR1@60", f"--output={log}", SHIPPED / "trainyard-allocation.sbatch",
             spec(shared / "spec.yaml", steps, 2), shared, "--devices=1", "--cores=1"]
    job = slurm.submit(*words)
    home = shared / f".trainyard-{job}"
    until(lambda: (home / "job").exists() or slurm.state(job) not in ("PENDING", "RUNNING", "CONFIGURING"), "the first run")
    assert (home / "job").exists(), log.read_text()
    until(lambda: "back to the queue" in log.read_text(), "the end of the allocation's time", 90)
    until(lambda: slurm.state(job) == "PENDING", f"the requeue: {slurm.state(job)}")
    marks = (home, f"trainyard-controller-{job} ")
    until(lambda: not left_over(*marks), f"the first run's programs to end: {left_over(*marks)}")

    # Slurm lets a job that was requeued wait for two minutes, until nodes may forget that they have just ended it. They
    # count in seconds, so that a few are enough here. This run gets the time that it needs.
    slurm("scontrol", "update", f"jobid={job}", "timelimit=10", "starttime=now+3")
    [ours] = (home / "job").read_text(encoding="utf-8").split()
    told = "trainyard-allocation: controller "
    until(lambda: told in log.read_text().rpartition("back to the queue")[2], "the second run's controller")
    address = log.read_text().rpartition(told)[2].split(",")[0]
    user = Cluster([BIN / "trainyard"], {"TRAINYARD_CONTROLLER": address, "TRAINYARD_TOKEN_FILE": str(home / "user.token"),
                                         "TRAINYARD_AUTHORITY": str(home / "authority.pem"), "HOME": "/"})
    user.runs_beyond(ours, user.last_checkpoint(ours) + 50)
    user("cancel", ours)
    until(lambda: "ended with code" in log.read_text(), "the second run's end")
    assert "ended with code 3" in log.read_text(), log.read_text() + (home / "controller.log").read_text()[-3000:]
    until(lambda: slurm.state(job) == "FAILED", f"the job's end: {slurm.state(job)}")
    until(lambda: not left_over(*marks), f"the second run's programs to end: {left_over(*marks)}")
    reader = Reader(home, shared / "reader.log")
    seen = reader.user.job(ours)
    assert seen["state"] == "JOB_STATE_CANCELLED" and int(seen["epoch"]) == 2 and not seen.get("restarts_without_progress"), seen
    reader.user.has_every_step_once(ours, reader.user.step(ours))
    reader.end()


def first_node_dies(slurm, job, marks):
    """Slurm misses the node, ends the rest of the job, and puts it back to the queue."""
    slurm.kill_node(slurm("squeue", "--noheader", f"--jobs={job}", "--format=%B"))
    until(lambda: slurm.state(job) == "PENDING", f"the requeue: {slurm.state(job)}", 120)
    until(lambda: not left_over(*marks), f"the dead run's programs to end: {left_over(*marks)}")
    slurm("scontrol", "update", f"jobid={job}", "starttime=now+5")


class Mortal:
    """An allocation, held at first, whose first node is going to die."""

    def __init__(self, slurm, shared):
        self.steps, self.slurm, self.log = 4000, slurm, shared / "allocation.log"
        self.job = slurm.submit("--hold", "--nodes=2", f"--output={self.log}", SHIPPED / "trainyard-allocation.sbatch",
                                spec(shared / "spec.yaml", self.steps, 2), shared, "--devices=1", "--cores=1")
        self.home = shared / f".trainyard-{self.job}"
        self.marks = (self.home, f"trainyard-controller-{self.job} ")
        self.home.mkdir()

    def dies(self):
        first_node_dies(self.slurm, self.job, self.marks)

    def succeeds(self):
        """Returns the job, its events, and the attempts that its steps were of."""
        until(lambda: "ended with code" in _text(self.log), "the last run", 120)
        assert "ended with code 0" in _text(self.log), _text(self.log) + _text(self.home / "controller.log")[-3000:]
        until(lambda: not left_over(*self.marks), f"the last run's programs to end: {left_over(*self.marks)}")
        reader = Reader(self.home, self.home / "reader.log")
        [ours] = _text(self.home / "job").split()
        records = [json.loads(line) for line in reader.user("steps", ours, "-o", "jsonl", seconds=120).splitlines()]
        assert [record["step"] for record in records] == list(range(1, self.steps + 1)), f"{len(records)} of {self.steps} steps"
        events = reader.user("events", ours)
        reader.end()
        return ours, events, {int(record["epoch"]) for record in records}


def early_death(slurm, shared):
    """Before the first backup, which cannot be made: nothing trains, and the job is submitted again."""
    mortal = Mortal(slurm, shared)
    (mortal.home / "backups").touch()
    slurm("scontrol", "release", mortal.job)
    # The second failure comes ten seconds after the first, long after workers would have begun.
    until(lambda: _text(mortal.home / "controller.log").count("backup_failed") > 1, f"two failed backups: {_text(mortal.log)}")
    lost = _text(mortal.home / "job")
    assert not list(mortal.home.glob("worker-*")), "ranks trained what no backup knows"
    mortal.dies()
    (mortal.home / "backups").unlink()
    ours, events, epochs = mortal.succeeds()
    assert ours not in lost and "restored from" not in events and len(epochs) == 1, (ours, lost, events, epochs)


def late_death(slurm, shared):
    """After the first checkpoint. The backup has the job, and the job goes on from its checkpoint."""
    mortal = Mortal(slurm, shared)
    slurm("scontrol", "release", mortal.job)
    until(lambda: list((shared / "runs/deployed").glob("epoch-*/step-*")), f"a checkpoint: {_text(mortal.log)}")
    first = _text(mortal.home / "job").strip()
    mortal.dies()
    ours, events, epochs = mortal.succeeds()
    assert ours == first and "restored from" in events and len(epochs) == 2, (ours, first, events, epochs)


def _text(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def opened(shared):
    """A controller elsewhere, as old as its worker on n11, which has been away since. Returns it, its address, the command line of its
    admin, and the token by which that worker joined."""
    state, home = shared / "controller", shared / "home"
    home.mkdir()
    old = past.joined(shared / "past", state, shared / ".trainyard-workers/n11", HOST)
    owner = [BIN / "trainyard-controller", "--state", state]
    run(*owner, "init", "--host", HOST)
    token = run(*owner, "token", "--name", "me", "--role", "admin")
    with open(shared / "controller.log", "w", encoding="utf-8") as log:
        controller = subprocess.Popen([*owner, "--listen", "0.0.0.0:0", "--metrics-listen", "0.0.0.0:0"], stdout=subprocess.PIPE, stderr=log,
                                      text=True)
    address = f"{HOST}:{controller.stdout.readline().split()[1].rpartition(':')[2]}"
    user = Cluster([BIN / "trainyard"], {"HOME": str(home), "TRAINYARD_CONTROLLER": address})
    assert "me: admin" in user("login", address, stdin=token)
    return controller, address, user, old


def refused(slurm, shared, address):
    """A join file that is not there, and a token that is no token: named, and nothing stays behind."""
    for join, words in ((shared / "nothing", "nothing"), (spec(shared / "wrong.token", 1, 1), "wrong.token")):
        log = shared / f"refused-{join.name}.log"
        job = slurm.submit("--array=1", f"--output={log}", SHIPPED / "trainyard-workers.sbatch", address, join, shared, "--devices=1")
        until(lambda: slurm.state(job) == "FAILED", f"the refusal: {slurm.state(job)}")
        assert words in log.read_text(), log.read_text()


def workers(slurm, shared):
    controller, address, user, old = opened(shared)
    refused(slurm, shared, address)
    expired_worker(slurm, shared, address, old)
    join = shared / "join.token"
    join.touch(0o600)
    join.write_text(user("token", "create", "slurm", "--role", "joiner", "--uses", "8"), encoding="utf-8")

    def array(elements, *options, devices=1):
        return slurm.submit(f"--array={elements}", "--gres=gpu:1", "--time=30", f"--output={shared}/worker-%A-%a.log", *options,
                            SHIPPED / "trainyard-workers.sbatch", address, join, shared, f"--devices={devices}", "--cores=1")

    began = time.monotonic()
    array("1-3")
    until(lambda: _count(user) == 3, "three workers")
    report("three workers of an array are READY", time.monotonic() - began)
    for worker in subprocess.run(["pgrep", "-f", "bin/trainyard-worker --contr"], capture_output=True, text=True, check=False).stdout.split():
        environment = pathlib.Path(f"/proc/{worker}/environ").read_text(encoding="utf-8", errors="replace")
        assert "CUDA_VISIBLE_DEVICES=0" in environment or "srun" in pathlib.Path(f"/proc/{worker}/cmdline").read_text(), environment

    job = user.submit(ranks=2)
    user.runs_beyond(job, 200)
    placed = {placement["worker_id"] for placement in user.job(job)["placement"]}
    victim = _element_of(slurm, shared, placed)
    slurm("scancel", victim)
    until(lambda: slurm.state(victim) in ("CANCELLED", "COMPLETED"), f"the cancelled element: {slurm.state(victim)}")
    user.runs_beyond(job, user.last_checkpoint(job) + 50)
    seen = user.job(job)
    assert not seen.get("restarts_without_progress") and int(seen["epoch"]) == 2, seen

    # Nodes of another kind: one with two ranks. Then a node dies; its steps may be repeated, and nothing is lost.
    array("1", devices=2)
    until(lambda: _count(user) == 3, "the other kind of node")
    placed = {placement["worker_id"] for placement in user.job(job)["placement"]}
    node = _node_of(shared, placed)
    slurm.kill_node(node)
    until(lambda: int(user.job(job)["epoch"]) == 3, "the job to begin anew")
    until(lambda: slurm.states()[node].startswith("down"), f"Slurm to miss the node: {slurm.states()}")
    user.runs_beyond(job, user.last_checkpoint(job) + 50)
    user.ends(job, ranks=2)

    slurm("scancel", "--name=trainyard-worker")
    mark = shared / ".trainyard-workers"
    until(lambda: not left_over(mark), f"the workers to end: {left_over(mark)}")
    controller.terminate()
    controller.wait()


def _count(user):
    return sum(worker["state"] == "WORKER_STATE_READY" for worker in json.loads(user("workers", "-o", "json"))["workers"])


def _node_of(shared, workers):
    for directory in (shared / ".trainyard-workers").iterdir():
        if (directory / "worker_id").read_text(encoding="utf-8").strip() in workers:
            return directory.name
    raise AssertionError(f"no node has one of {workers}")


def _element_of(slurm, shared, workers):
    return slurm("squeue", "--noheader", f"--nodelist={_node_of(shared, workers)}", "--format=%i")


def timed(test, slurm, home, *more):
    shared = home / test.__name__
    shared.mkdir()
    began = time.monotonic()
    try:
        test(slurm, shared, *more)
    except BaseException as error:
        print(f"{test.__name__} has failed: {error}", flush=True)  # The others go on.
        raise
    report(f"{test.__name__} has ended", time.monotonic() - began)


def main():
    isolation.enter()
    began = time.monotonic()
    home = MADE / "slurm"
    home.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", home)
    os.environ["PATH"] = f"{BIN}:{os.environ['PATH']}"
    os.environ["TMPDIR"] = str(home / "tmp")  # The nodes' own disk.
    (home / "tmp").mkdir()
    Network()  # Slurm wants more than loopback.
    names = home / "hosts"
    names.write_text(f"127.0.0.1 localhost\n{OWN_ADDRESS} {HOST}\n", encoding="utf-8")
    run("mount", "--bind", names, "/etc/hosts")
    slurm = Slurm(home / "slurm")
    try:
        elsewhere = home / "elsewhere"
        elsewhere.mkdir()
        slurm.start(elsewhere)
        report("Slurm's nodes are idle", time.monotonic() - began)
        with concurrent.futures.ThreadPoolExecutor() as together:
            tests = [together.submit(timed, test, slurm, home) for test in (allocation, early_death, late_death, workers)]
            tests.append(together.submit(timed, bad_input, slurm, home, elsewhere))
        for test in tests:
            test.result()
    except BaseException:
        for log in sorted(home.rglob("*.log")):
            print(f"== {log.relative_to(home)}", *log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:], sep="\n")
        raise


if __name__ == "__main__":
    main()
