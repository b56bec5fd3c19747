"""Runs the pods of the overlay cpu-demo by podman, each on a machine of its own (a network namespace), from the manifests as
they are rendered: the controller with its init container, probes, a worker that joins by a Secret, a drain."""
import base64
import copy
import pathlib
import subprocess
import sys
import time

import yaml

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(TESTS / "chaos"))
import isolation  # noqa: E402
import past  # noqa: E402
from containers import IMAGE, STORAGE, make_images, podman  # noqa: E402
from deployed import Cluster, report, until  # noqa: E402
from manifests import rendered, skip_without_kustomize  # noqa: E402
from network import Network  # noqa: E402
from package import BIN, run  # noqa: E402

skip_without_kustomize()
THINGS = {(thing["kind"], thing["metadata"]["name"]): thing for thing in rendered("cpu-demo")}
CONTROLLER, WORKER = "trainyard-controller", "trainyard-worker"


class Pod:
    """The first pod of a StatefulSet, made as its controller in Kubernetes would make it."""

    def __init__(self, name, machine, *beside):
        stateful = THINGS["StatefulSet", name]
        spec = copy.deepcopy(stateful["spec"]["template"]["spec"])
        self.name, self.grace, self.machine = f"{name}-0", spec["terminationGracePeriodSeconds"], machine
        self.container = f"{self.name}-{spec['containers'][0]['name']}"
        claims = [{**claim, "kind": "PersistentVolumeClaim", "apiVersion": "v1",
                   "metadata": {"name": f"{claim['metadata']['name']}-{self.name}"}} for claim in stateful["spec"]["volumeClaimTemplates"]]
        spec["volumes"] = spec.get("volumes", []) + [
            {"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": f"{claim['metadata']['name']}-{self.name}"}}
            for claim in stateful["spec"]["volumeClaimTemplates"]]
        spec["hostname"] = self.name
        # Podman restarts what should run once before the rest, so that it has a pod of its own here; and it knows neither
        # that field of a pod nor $(NAMESPACE).
        self.before = []
        if first := spec.pop("initContainers", []):
            for container in first:
                assert container.pop("env")[0]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
                container["args"] = [word.replace("$(NAMESPACE)", "trainyard") for word in container["args"]]
            self.before = [self.pod(f"{self.name}-before", {**spec, "containers": first, "restartPolicy": "Never"})]
        for container in spec["containers"]:
            container["env"] = [{"name": "KUBERNETES_SERVICE_HOST", "value": machine.address}]  # As every pod has.
            del container["ports"]  # Podman would publish them, which it cannot in a namespace that it has not made.
        self.files = [*beside, *claims, self.pod(self.name, spec)]
        self.probe = spec["containers"][0]["readinessProbe"]["exec"]["command"]

    @staticmethod
    def pod(name, spec):
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "trainyard"}, "spec": spec}

    def play(self):
        if self.before:
            claims = [thing for thing in self.files if thing["kind"] == "PersistentVolumeClaim"]
            self._play([*claims, *self.before])
            until(lambda: "Exited" in run(*podman("ps", "--all", "--filter=name=-before-init", "--format={{.Status}}")), "what runs before")
        self._play(self.files)

    def _play(self, things):
        # A claim outlives its pod, and podman would make it once more.
        things = [thing for thing in things if thing["kind"] != "PersistentVolumeClaim" or not is_there(thing["metadata"]["name"])]
        text = yaml.safe_dump_all(things)
        ran = subprocess.run([*self.machine.enter, *podman("play", "kube", "--network=host", "-")], input=text, text=True,
                             capture_output=True, check=False)
        assert ran.returncode == 0, text + ran.stdout + ran.stderr[-2000:]

    def is_ready(self):
        def probed():
            command = [*self.machine.enter, *podman("exec", self.container, *self.probe)]
            try:
                ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
            except subprocess.TimeoutExpired:  # Podman waits for ever where the container ends meanwhile.
                return False
            said.append(ran.stdout + ran.stderr)
            return ran.returncode == 0
        said = []
        try:
            until(probed, f"{self.name} to be ready", 30)
        except AssertionError as error:
            raise AssertionError(f"{error}: {said[-1]}{self.logs()}") from error

    def run(self, *command):
        return run(*self.machine.enter, *podman("exec", self.container, *command))

    def logs(self):
        ran = subprocess.run(podman("logs", self.container), capture_output=True, text=True, check=False)
        return ran.stdout + ran.stderr

    def stop(self):
        containers = run(*podman("ps", f"--filter=pod={self.name}", "--no-trunc", "--format={{.ID}}")).split()
        run(*podman("pod", "stop", f"--time={self.grace}", self.name))
        # What tidies up behind a container comes later, and would call a container that runs again ended.
        until(lambda: not any(is_named(container) for container in containers), f"the end of {self.name}")

    def start(self):
        run(*self.machine.enter, *podman("pod", "start", self.name))


def secret(name, key, text):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {key: base64.b64encode(text.encode()).decode()}}


def as_kubernetes_mounts(path):
    """Podman leaves a Secret as its manifest has it, in base64, with mode 0644. Kubernetes decodes it, and gives it the
    manifest's mode and the group of the pod's fsGroup, which may then read it."""
    path.write_bytes(base64.b64decode(path.read_bytes()))
    run("chown", "0:10001", path)
    path.chmod(0o440)


def is_named(container):
    """Whether a process's command line has the container's number."""
    return subprocess.run(["pgrep", "--full", container], stdout=subprocess.DEVNULL, check=False).returncode == 0


def is_there(claim):
    return subprocess.run(podman("volume", "exists", claim), check=False).returncode == 0


def claim(pod):
    """Where podman keeps what the pod's claim for its state holds."""
    return run(*podman("volume", "inspect", f"state-{pod}-0", "--format={{.Mountpoint}}")).strip()


def grown_old(home):
    """Claims of a controller and a worker that were there 40 days ago. Returns the worker's token of then."""
    (home / "then").mkdir()
    token = past.joined(home / "past", home / "then/controller", home / "then/worker", CONTROLLER)
    for pod, part in ((CONTROLLER, "controller"), (WORKER, "worker")):
        run(*podman("volume", "create", f"state-{pod}-0"))
        run("cp", "-R", home / "then" / part, claim(pod))
        run("chown", "-R", "10001:10001", claim(pod))
    return token.read_text(encoding="utf-8")


def refused(worker, *words):
    """The worker's pod says in its log what is wrong with its certificate, and what to do."""
    worker.play()
    as_kubernetes_mounts(STORAGE / "storage/volumes/trainyard-join/_data/join.token")
    wanted = [*words, "Give the worker --join FILE with the output of 'trainyard token create NAME --role joiner'"]
    until(lambda: all(word in worker.logs() for word in wanted), f"{wanted} in the log of {worker.name}: {worker.logs()}")
    run(*podman("pod", "rm", "--force", worker.name))
    run(*podman("volume", "rm", "trainyard-join"))
    run(*podman("secret", "rm", "trainyard-join"))


def main():
    isolation.enter()
    make_images()
    network = Network()
    first, second = network.add("one"), network.add("two")
    home = STORAGE / "home"
    home.mkdir()
    old = grown_old(home)
    controller = Pod(CONTROLLER, first)
    controller.play()
    controller.is_ready()

    # deploy/README.md, "Kubernetes"; a port-forward is not needed here.
    token = controller.run("trainyard-controller", "--state", "/var/lib/trainyard/controller", "token", "--name", "me", "--role", "admin")
    authority = home / "authority.pem"
    authority.write_text(controller.run("cat", "/var/lib/trainyard/controller/authority/authority.pem"), encoding="utf-8")
    user = Cluster([*first.enter, "env", f"HOME={home}", "TRAINYARD_CONTROLLER=127.0.0.1:7070", f"{BIN}/trainyard"])
    until(lambda: user("login", "127.0.0.1:7070", stdin=token, check=False).returncode == 0, "the login")
    joiner = user("token", "create", "workers", "--role", "joiner", "--uses", "100", "--hosts", "trainyard-worker-*")

    # Names of Services are Kubernetes' work. Podman takes the machine's, and this mount is the test's alone.
    hosts = home / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{first.address} trainyard-controller\n", encoding="utf-8")
    run("mount", "--bind", hosts, "/etc/hosts")
    data = THINGS["PersistentVolumeClaim", "trainyard-data"]
    certificate = pathlib.Path(claim(WORKER)) / "worker/controller/certificate.pem"
    stale = Pod(WORKER, second, secret("trainyard-join", "join.token", old), data)
    refused(stale, "/var/lib/trainyard/worker/controller/certificate.pem: the certificate of '", "' expired after 20",
            "does not know the token: it has expired")
    kept = certificate.read_bytes()
    certificate.unlink()
    refused(stale, "no certificate at /var/lib/trainyard/worker/controller/certificate.pem", "does not know the token: it has expired")
    certificate.write_bytes(kept)
    worker = Pod(WORKER, second, secret("trainyard-join", "join.token", joiner), data)
    began = time.monotonic()
    worker.play()
    as_kubernetes_mounts(STORAGE / "storage/volumes/trainyard-join/_data/join.token")
    worker.is_ready()
    report("a worker's pod is ready", time.monotonic() - began)
    assert list(user.workers()) == [worker.name], user.workers()

    job = user.submit(ranks=1)
    user.runs_beyond(job, 200)
    began = time.monotonic()
    worker.stop()
    report(f"the pod has drained at step {user.has_drained(job)}", time.monotonic() - began)
    worker.start()
    user.runs_beyond(job, user.step(job) + 50)
    controller.stop()
    controller.start()
    controller.is_ready()  # What keeps the controller from that is said with its log.
    user.runs_beyond(job, user.step(job) + 50)
    user.ends(job, ranks=1)


if __name__ == "__main__":
    main()
