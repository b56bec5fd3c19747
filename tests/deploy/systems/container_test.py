"""Trains in containers of the image as it is shipped, on machines that are network namespaces: stops, kills and starts them."""
import pathlib
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(TESTS / "chaos"))
import isolation  # noqa: E402
import past  # noqa: E402
from containers import CONFINED, IMAGE, STORAGE, build, directory, make_images, podman  # noqa: E402
from deployed import Cluster, report, until  # noqa: E402
from network import Network  # noqa: E402
from package import BIN, run  # noqa: E402

STATE = "/var/lib/trainyard"


class Container:
    def __init__(self, name, machine, *mounts):
        self.name, self.machine = name, machine
        self.options = [*CONFINED, f"--name={name}", f"--hostname={name}", f"--network=ns:/proc/{machine.holder.pid}/ns/net",
                        *(f"--volume={outside}:{inside}" for outside, inside in mounts)]

    def run(self, *command):
        """To its end; what it printed."""
        return run(*podman("run", "--rm", "--interactive", *self.options, IMAGE, *command))

    def start(self, *command):
        run(*podman("run", "--detach", *self.options, IMAGE, *command))

    def logs(self):
        ran = subprocess.run(podman("logs", self.name), capture_output=True, text=True, check=False)
        return ran.stdout + ran.stderr

    def is_ready(self):
        until(lambda: "ready " in self.logs() or not self.runs(), f"{self.name} to be ready")
        assert self.runs(), self.logs()

    def runs(self):
        return run(*podman("inspect", self.name, "--format", "{{.State.Running}}")).strip() == "true"

    def exit_code(self):
        return int(run(*podman("inspect", self.name, "--format", "{{.State.ExitCode}}")))


def opened(controller, address):
    state = f"{STATE}/controller"
    controller.run("trainyard-controller", "--state", state, "init", "--host", address, "--host", "127.0.0.1")
    token = controller.run("trainyard-controller", "--state", state, "token", "--name", "alice", "--role", "admin")
    controller.start("trainyard-controller", "--state", state, "--listen", "0.0.0.0:7070", "--metrics-listen", "0.0.0.0:9464")
    controller.is_ready()
    probe = ["trainyard", "health", "--controller=127.0.0.1:7070", f"--authority={state}/authority/authority.pem"]
    assert "answers" in run(*podman("exec", controller.name, *probe))
    return token


def cannot_serve(controller, address):
    """A controller whose certificate has expired or is missing, and one whose ports are taken."""
    home = STORAGE / "bad"
    home.mkdir()
    past.joined(home / "past", home / "controller", home / "worker", address)
    (home / "controller/authority/server.pem").rename(home / "old.pem")
    run("chown", "-R", "10001:10001", home)
    second = Container("second", controller.machine, (home, STATE))

    def said(*words):
        command = ["trainyard-controller", "--state", f"{STATE}/controller", *words]
        ran = subprocess.run(podman("run", "--rm", *second.options, IMAGE, *command), capture_output=True, text=True, check=False,
                             timeout=60)
        assert ran.returncode == 1, ran
        return ran.stderr

    free = ["--listen=0.0.0.0:0", "--metrics-listen=0.0.0.0:0"]
    own, unusable = f"{STATE}/old.pem", "the certificate that proves this controller cannot be used: "
    text = said(*free, f"--tls-key={own}", f"--tls-certificate={own}")
    assert f"{unusable}{own}: the certificate of \\'Trainyard controller\\' expired after 20" in text, text
    assert "where --tls-certificate and --tls-key say" in text, text
    text = said(*free, f"--tls-key={own}", "--tls-certificate=/gone.pem")
    assert f"{unusable}cannot open /gone.pem: No such file" in text and "where --tls-certificate" in text, text
    text = said(*free)
    assert f"{unusable}cannot open {STATE}/controller/authority/server.pem" in text, text
    assert "trainyard-controller init" in text, text
    second.run("trainyard-controller", "--state", f"{STATE}/controller", "init", "--host", address)
    text = said("--listen=0.0.0.0:7070", "--metrics-listen=0.0.0.0:0")
    assert "cannot listen on 0.0.0.0:7070: the port is taken" in text and "by --listen" in text, text
    text = said("--listen=0.0.0.0:0", "--metrics-listen=0.0.0.0:9464")
    assert "cannot serve metrics at 0.0.0.0:9464" in text and "by --metrics-listen" in text, text


def trains(network, home):
    first, second = network.add("one"), network.add("two")
    controller = Container("controller", first, (directory(home / "controller"), STATE))
    token = opened(controller, first.address)
    cannot_serve(controller, first.address)
    user = Cluster(["env", f"HOME={home}", f"TRAINYARD_CONTROLLER={first.address}:7070", f"{BIN}/trainyard"])
    assert "alice: admin" in user("login", f"{first.address}:7070", stdin=token)
    joiner = home / "join.token"
    joiner.touch(0o600)
    joiner.write_text(user("token", "create", "rack", "--role", "joiner"), encoding="utf-8")
    run("chown", "10001:10001", joiner)

    worker = Container("worker", second, (directory(home / "worker"), STATE), (directory(home / "data"), "/data"),
                       (f"{joiner}", "/run/join.token:ro"))
    began = time.monotonic()
    worker.start("trainyard-worker", f"--controller={first.address}:7070", "--join=/run/join.token", f"--state={STATE}/worker",
                 "--root=/data", "--devices=2", "--cores=1", "--metrics-listen=0.0.0.0:9465")
    worker.is_ready()
    report("a worker in a container is READY", time.monotonic() - began)
    until(lambda: Cluster(podman("exec", "worker", "trainyard"))("health", "--worker", f"{STATE}/worker", check=False).returncode == 0,
          "the worker's probe")
    job = user.submit(ranks=2)
    user.runs_beyond(job, 200)

    began = time.monotonic()
    run(*podman("stop", "--time=60", "worker"))
    report(f"podman stop has drained at step {user.has_drained(job)}", time.monotonic() - began)
    assert worker.exit_code() == 0, worker.logs()
    run(*podman("start", "worker"))
    user.runs_beyond(job, user.step(job) + 100)
    assert not user.job(job).get("restarts_without_progress")

    run(*podman("kill", "worker"))
    until(lambda: user.state(job) in ("RECOVERING", "QUEUED"), "the job to miss its worker")
    run(*podman("start", "worker"))
    run(*podman("stop", "--time=60", "controller"))
    run(*podman("start", "controller"))
    user.runs_beyond(job, user.step(job) + 50)
    user.ends(job, ranks=2)
    run(*podman("stop", "--time=60", "worker", "controller"))
    assert (worker.exit_code(), controller.exit_code()) == (0, 0), worker.logs() + controller.logs()


def main():
    isolation.enter()
    size = make_images()
    print(f"figure: the image has {size / 1e6:.1f} MB")
    assert size <= 130e6, size
    # The CUDA variant is made of another base; here, of the same, to see that its file is good.
    build("Containerfile.cuda", "localhost/trainyard-cuda")
    ran = run(*podman("run", "--rm", "--network=none", *CONFINED, "localhost/trainyard-cuda", "trainyard", "--version"))
    assert ran.startswith("trainyard 0.1.0"), ran
    trains(Network(), STORAGE / "home")


if __name__ == "__main__":
    main()
