"""Slurm on one machine: munge, a controller, and thirteen nodes with a GPU each by its name, all in the test's namespaces."""
import os
import pathlib
import shutil
import socket
import subprocess

from deployed import until
from package import run

NODES = [f"n{i}" for i in range(1, 14)]
ODD = NODES[-3:]  # In a partition of their own.
FIRST_PORT = 17001

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=17000
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,requeue_setup_env_fail,bf_interval=1
SlurmdParameters=config_overrides
GresTypes=gpu
JobRequeue=1
MinJobAge=300
KillWait=30
MessageTimeout=20
SlurmdTimeout=10
ReturnToService=2
StateSaveLocation={home}/ctld
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/ctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/ctld.log
SlurmdLogFile={home}/slurmd-%n.log
"""


class Slurm:
    def __init__(self, home: pathlib.Path):
        self.home, host = home, socket.gethostname()
        (home / "ctld").mkdir(parents=True)
        (home / "munge").mkdir(mode=0o755)
        nodes = "".join(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={FIRST_PORT + i} CPUs=8 RealMemory=2000 Gres=gpu:1\n"
                        for i, node in enumerate(NODES))
        (home / "slurm.conf").write_text(CONFIGURATION.format(host=host, home=home) + nodes +
                                         _partition("all", NODES[:-3], "YES") + _partition("odd", ODD, "NO"), encoding="utf-8")
        devices = [home / f"gpu{i}" for i in range(len(NODES))]
        for device in devices:
            run("mknod", device, "c", "1", "3")
        (home / "gres.conf").write_text("".join(f"NodeName={node} Name=gpu File={device}\n" for node, device in zip(NODES, devices)),
                                        encoding="utf-8")
        self.environment = {**os.environ, "SLURM_CONF": str(home / "slurm.conf")}
        self.daemons = {}

    def start(self, elsewhere):
        """The last node has another directory than the rest where these have `elsewhere`."""
        key = self.home / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        shutil.chown(key, "root")
        run("munged", "--force", f"--socket={self.home}/munge/socket", f"--key-file={key}", f"--log-file={self.home}/munge/log",
            f"--pid-file={self.home}/munge/pid", f"--seed-file={self.home}/munge/seed")
        self._daemon("slurmctld", "slurmctld", "-D", "-i")
        for node in NODES[:-1]:
            self.start_node(node)
        self.start_node(NODES[-1], "unshare", "--mount", "bash", "-c", 'mount -t tmpfs none "$1" && exec "${@:2}"', "apart", elsewhere)
        until(lambda: self.states() == {node: "idle" for node in NODES}, f"the nodes: {self.states()}")

    def start_node(self, node, *inside):
        self._daemon(node, *inside, "slurmd", "-D", "-N", node)

    def _daemon(self, name, *command):
        with open(self.home / f"{name}.out", "a", encoding="utf-8") as log:
            self.daemons[name] = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)

    def kill_node(self, node):
        """A machine that is gone: its daemon, and the steps that it has started, with all that these have started."""
        steps = subprocess.run(["pgrep", "-f", "slurmstepd"], capture_output=True, text=True, check=False).stdout.split()
        of_node = [pid for pid in steps if f"SLURMD_NODENAME={node}\0" in _environment_below(pid)]
        # The steps first: one that saw its script end would tell Slurm, and the job would have ended instead of lost its node.
        below = [process for pid in of_node for process in _descendants(pid)]
        self.daemons[node].kill()
        subprocess.run(["kill", "-KILL", *of_node, *below], check=False, capture_output=True)
        self.daemons[node].wait()

    def __call__(self, *command, check=True):
        ran = subprocess.run(["timeout", "30", *command], capture_output=True, text=True, env=self.environment, check=False)
        assert not check or ran.returncode == 0, f"{' '.join(command)}: {ran.stdout}{ran.stderr}"
        return ran.stdout.strip()

    def states(self):
        lines = self("sinfo", "--noheader", "--Node", "--format=%N %t", check=False).splitlines()
        return dict(line.split() for line in lines)

    def state(self, job):
        return self("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T", check=False)

    def submit(self, *words):
        return self("sbatch", "--parsable", *map(str, words)).split(";")[0]


def _partition(name, nodes, default):
    return f"PartitionName={name} Nodes={','.join(nodes)} Default={default} OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP\n"


def _children(pid):
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()


def _descendants(pid):
    found = []
    for child in _children(pid):
        found += [*_descendants(child), child]
    return found


def _environment_below(pid):
    text = ""
    for process in _descendants(pid):
        try:
            text += pathlib.Path(f"/proc/{process}/environ").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return text
