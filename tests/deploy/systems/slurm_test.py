"""A real Slurm of four nodes runs the scripts of deploy/slurm/ as they are shipped: an allocation that has everything and goes back to
the queue at its time limit, and an array of workers for a controller elsewhere, of which one is cancelled and one loses its node."""
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
from deployed import SPEC, Cluster, report, until  # noqa: E402
from network import OWN_ADDRESS, Network  # noqa: E402
from package import BIN, MADE, SOURCE, run  # noqa: E402
from slurm import Slurm  # noqa: E402

SHIPPED = SOURCE / "deploy/slurm"
HOST = socket.gethostname()


def spec(path, steps, ranks):
    path.write_text(SPEC.replace("STEPS", str(steps)).replace("RANKS", str(ranks)), encoding="utf-8")
    return path


def left_over():
    """Programs of ours that run; this test's namespace of processes has no others."""
    ran = subprocess.run(["pgrep", "--list-full", "trainyard-"], capture_output=True, text=True, check=False)
    return [line for line in ran.stdout.splitlines() if "slurm_test" not in line]


def allocation(slurm, shared):
    steps, log = 14_000, shared / "allocation.log"
    # The signal of the time limit, as Slurm sends it: it looks every half a minute.
    words = ["--nodes=2", "--time=1", "--signal=B:USR1@60", f"--output={log}", SHIPPED / "trainyard-allocation.sbatch",
             spec(shared / "spec.yaml", steps, 2), shared, "--devices=1", "--cores=1"]
    job = slurm.submit(*words)
    home = shared / f".trainyard-{job}"
    until(lambda: (home / "job").exists() or slurm.state(job) not in ("PENDING", "RUNNING", "CONFIGURING"), "the first run")
    assert (home / "job").exists(), log.read_text()
    until(lambda: "back to the queue" in log.read_text(), "the end of the allocation's time", 90)
    until(lambda: slurm.state(job) == "PENDING", f"the requeue: {slurm.state(job)}")
    until(lambda: not left_over(), f"the first run's programs to end: {left_over()}")

    # Slurm lets a job that was requeued wait for two minutes, until nodes may forget that they have just ended it. They
    # count in seconds, so that a few are enough here. This run gets the time that it needs.
    slurm("scontrol", "update", f"jobid={job}", "timelimit=10", "starttime=now+3")
    until(lambda: "ended with code" in log.read_text(), "the second run", 120)
    assert "ended with code 0" in log.read_text(), log.read_text() + (home / "controller.log").read_text()[-3000:]
    until(lambda: slurm.state(job) == "COMPLETED", f"the job's end: {slurm.state(job)}")
    until(lambda: not left_over(), f"the second run's programs to end: {left_over()}")

    # What a user can still ask: the store that the allocation left.
    with open(shared / "reader.log", "w", encoding="utf-8") as errors:
        reader = subprocess.Popen([BIN / "trainyard-controller", "--state", home / "controller", "--listen", "127.0.0.1:0", "--metrics-listen",
                                   "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=errors, text=True)
    address = reader.stdout.readline().split()[1].removeprefix("controller=")
    user = Cluster([BIN / "trainyard"], {"TRAINYARD_CONTROLLER": address, "TRAINYARD_TOKEN_FILE": str(home / "controller/token"), "HOME": "/"})
    [ours] = (home / "job").read_text(encoding="utf-8").split()
    user.has_every_step_once(ours, steps)
    seen = user.job(ours)
    assert seen["state"] == "JOB_STATE_SUCCEEDED" and int(seen["epoch"]) == 2 and not seen.get("restarts_without_progress"), seen
    reader.terminate()
    reader.wait()


def opened(shared):
    """A controller elsewhere. Returns it, its address, and the command line of its admin."""
    state, home = shared / "controller", shared / "home"
    home.mkdir()
    owner = [BIN / "trainyard-controller", "--state", state]
    run(*owner, "init", "--host", HOST)
    token = run(*owner, "token", "--name", "me", "--role", "admin")
    with open(shared / "controller.log", "w", encoding="utf-8") as log:
        controller = subprocess.Popen([*owner, "--listen", "0.0.0.0:0", "--metrics-listen", "0.0.0.0:0"], stdout=subprocess.PIPE, stderr=log,
                                      text=True)
    address = f"{HOST}:{controller.stdout.readline().split()[1].rpartition(':')[2]}"
    user = Cluster([BIN / "trainyard"], {"HOME": str(home), "TRAINYARD_CONTROLLER": address})
    assert "me: admin" in user("login", address, stdin=token)
    return controller, address, user


def refused(slurm, shared, address):
    """A join file that is not there, and a token that is no token: named, and nothing stays behind."""
    for join, words in ((shared / "nothing", "nothing"), (spec(shared / "wrong.token", 1, 1), "wrong.token")):
        log = shared / f"refused-{join.name}.log"
        job = slurm.submit("--array=1", f"--output={log}", SHIPPED / "trainyard-workers.sbatch", address, join, shared, "--devices=1")
        until(lambda: slurm.state(job) == "FAILED", f"the refusal: {slurm.state(job)}")
        assert words in log.read_text(), log.read_text()


def workers(slurm, shared):
    controller, address, user = opened(shared)
    refused(slurm, shared, address)
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

    job = user.submit(6000, ranks=2)
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
    ran = user("watch", job, "-q", check=False, seconds=180)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    user.has_every_step_once(job, 6000)

    slurm("scancel", "--user=root")
    until(lambda: not [line for line in left_over() if "trainyard-controller" not in line], f"the workers to end: {left_over()}")
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


def main():
    isolation.enter()
    home = MADE / "slurm"
    home.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", home)
    os.environ["PATH"] = f"{BIN}:{os.environ['PATH']}"
    Network()  # Slurm wants more than loopback.
    names = home / "hosts"
    names.write_text(f"127.0.0.1 localhost\n{OWN_ADDRESS} {HOST}\n", encoding="utf-8")
    run("mount", "--bind", names, "/etc/hosts")
    slurm = Slurm(home / "slurm")
    try:
        slurm.start()
        for test in (allocation, workers):
            shared = home / test.__name__
            shared.mkdir()
            began = time.monotonic()
            test(slurm, shared)
            print(f"{test.__name__}: {time.monotonic() - began:.0f} s", flush=True)
    except BaseException:
        for log in sorted(home.rglob("*.log")):
            print(f"== {log.relative_to(home)}", *log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:], sep="\n")
        raise


if __name__ == "__main__":
    main()
