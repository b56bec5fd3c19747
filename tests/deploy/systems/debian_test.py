"""Installs the Debian package in a bare Debian 12, and does what deploy/README.md says: a controller that is opened to a
network, a worker that joins, a job. Upgrades both under the job, drains, removes and purges the package."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(TESTS / "chaos"))
import isolation  # noqa: E402
from deployed import Cluster, report, until  # noqa: E402
from network import OWN_ADDRESS, Network  # noqa: E402
from package import BASE, MADE, SOURCE, package, run  # noqa: E402
from unit import Unit  # noqa: E402

RANKS = 2


def machine(scratch: pathlib.Path):
    """A Debian of its own above the base, which stays as it is."""
    for name in ("upper", "work", "root"):
        (scratch / name).mkdir()
    run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={BASE},upperdir={scratch}/upper,workdir={scratch}/work", scratch / "root")
    root = scratch / "root"
    run("mount", "-t", "proc", "proc", root / "proc")
    run("mount", "--bind", "/dev", root / "dev")
    return root


def substitute(path: pathlib.Path, **values):
    """What a user edits."""
    text = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(next((f"{key}={value}" for key, value in values.items() if line.startswith(f"{key}=")), line)
                              for line in text) + "\n", encoding="utf-8")


def processes(root):
    """Programs of the package that run, but for this test."""
    ran = subprocess.run(["pgrep", "--list-full", "trainyard"], capture_output=True, text=True, check=False)
    return [line for line in ran.stdout.splitlines() if "debian_test" not in line]


def opened(root, inside):
    """What deploy/README.md does on the controller's machine."""
    substitute(root / "etc/default/trainyard-controller", LISTEN="0.0.0.0:7070", METRICS_LISTEN="0.0.0.0:9464")
    controller = Unit(root, "trainyard-controller")
    owner = [*inside, "chroot", f"--userspec={controller.user}", root, "trainyard-controller", "--state", "/var/lib/trainyard-controller"]
    run(*owner, "init", "--host", OWN_ADDRESS)
    token = run(*owner, "token", "--name", "alice", "--role", "admin")
    began = time.monotonic()
    controller.start(root.parent / "controller.log", inside)
    report("the package's controller serves", time.monotonic() - began)
    (root / "home/alice").mkdir()
    cluster = Cluster([*inside, "chroot", root, "env", "HOME=/home/alice", f"TRAINYARD_CONTROLLER={OWN_ADDRESS}:7070", "trainyard"])
    assert "alice: admin" in cluster("login", f"{OWN_ADDRESS}:7070", stdin=token)
    return controller, cluster


def explained(*command):
    """What a command that fails says is in the table of deploy/README.md, "When something is wrong"."""
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0, ran
    table = (SOURCE / "deploy/README.md").read_text(encoding="utf-8").partition("## When something is wrong")[2]
    quoted = [words for row in table.splitlines() if row.startswith("| ") for words in re.findall("`(.+?)`", row.split("|")[1])]
    assert any(re.search(".*".join(map(re.escape, words.split("..."))), ran.stderr) for words in quoted), f"{command}: {ran.stderr}"


def careless(root, inside):
    """A controller runs; what goes wrong beside it."""
    state, other = "/var/lib/trainyard-controller", "/var/lib/trainyard-data/another"
    as_user = [*inside, "chroot", "--userspec=trainyard", root, "trainyard-controller", "--metrics-listen", "127.0.0.1:0"]
    explained(*inside, "chroot", root, "trainyard-controller", "--state", state, "init", "--host", OWN_ADDRESS)
    explained(*as_user, "--state", state, "--listen", "127.0.0.1:0")
    explained(*as_user, "--state", other, "--listen", "127.0.0.1:0")
    as_root = [*inside, "chroot", root, "trainyard-controller", "--state", "/var/lib/another"]
    explained(*as_root, "--listen", "127.0.0.1:7070", "--metrics-listen", "127.0.0.1:0")
    explained(*as_root, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:9464")
    explained(*as_root, "--listen", "0.0.0.0:0", "--metrics-listen", "127.0.0.1:0")


def joined(root, inside, cluster):
    substitute(root / "etc/default/trainyard-worker", CONTROLLER=f"{OWN_ADDRESS}:7070", METRICS_LISTEN="0.0.0.0:9465",
               OPTIONS=f"--devices {RANKS} --cores 1")
    worker = Unit(root, "trainyard-worker")
    # Without the token, and with one that others may read.
    explained(*inside, "chroot", root, *worker.command())
    (root / "etc/trainyard").mkdir()
    token = root / "etc/trainyard/join.token"
    token.touch(0o644)
    token.write_text(cluster("token", "create", "rack", "--role", "joiner"), encoding="utf-8")
    explained(*inside, "chroot", root, *worker.command())
    token.chmod(0o600)
    began = time.monotonic()
    worker.start(root.parent / "worker.log", inside)
    report("the package's worker is READY", time.monotonic() - began)
    return worker


def trains(root, inside):
    controller, cluster = opened(root, inside)
    careless(root, inside)
    worker = joined(root, inside, cluster)
    job = cluster.submit(RANKS)
    cluster.runs_beyond(job, 200)
    users = run("ps", "-C", "trainyard-train", "-o", "uid=").split()
    ranks = run("chroot", root, "id", "-u", "trainyard-rank").strip()
    assert len(users) == RANKS and set(users) == {ranks}, f"ranks run as {users}, wanted {ranks}"

    # An upgrade: files are replaced under running programs, the controller starts anew, the worker is reloaded.
    run("chroot", root, "dpkg", "--install", "/package.deb", env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
    assert f"{OWN_ADDRESS}:7070" in (root / "etc/default/trainyard-worker").read_text(encoding="utf-8"), "the upgrade lost an edit"
    controller.signal(signal.SIGTERM)
    controller.start(root.parent / "controller.log", inside)
    worker.signal(signal.SIGUSR2)
    worker.start(root.parent / "worker.log", inside)
    cluster.runs_beyond(job, cluster.step(job) + 50)
    seen = cluster.job(job)
    assert (seen["epoch"], int(seen.get("restarts", 0))) == ("1", 0), seen

    began = time.monotonic()
    worker.signal(signal.SIGTERM)
    report(f"the worker has drained at step {cluster.has_drained(job)}", time.monotonic() - began)
    left = [line for line in processes(root) if "trainyard-controller" not in line]
    assert not left, left
    worker.start(root.parent / "worker.log", inside)
    cluster.runs_beyond(job, cluster.step(job) + 50)
    cluster.ends(job, RANKS)
    worker.signal(signal.SIGTERM)
    controller.signal(signal.SIGTERM)


def main():
    isolation.enter()
    Network().add("m")  # Brings up the bridge with this machine's address.
    # Mounts are this namespace's, and go with it.
    scratch = MADE / "debian"
    scratch.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", scratch)
    root = machine(scratch)
    (root / "package.deb").write_bytes(package().read_bytes())
    began = time.monotonic()
    run("chroot", root, "dpkg", "--install", "/package.deb")
    report("the package is installed", time.monotonic() - began)
    trains(root, [])
    until(lambda: not processes(root), "the last process to end")
    run("chroot", root, "dpkg", "--remove", "trainyard")
    assert (root / "var/lib/trainyard-controller/authority").exists() and not (root / "usr/bin/trainyard").exists()
    run("chroot", root, "dpkg", "--purge", "trainyard")
    assert not list((root / "var/lib").glob("trainyard-[cw]*")) and not list((root / "etc/default").glob("trainyard*"))
    assert list((root / "var/lib/trainyard-data/runs/deployed").iterdir()), "the purge removed a job's checkpoints"


if __name__ == "__main__":
    main()
