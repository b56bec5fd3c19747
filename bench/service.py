"""Services of a benchmark's own, in a temporary directory: `trainyard up`, or a controller alone, with TLS."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ["TRAINYARD_BIN"]).parent if "TRAINYARD_BIN" in os.environ else ROOT / "build"
TRAINYARD = str(BUILD / "bin/trainyard")
CONTROLLER = str(BUILD / "bin/trainyard-controller")
TICKS = os.sysconf("SC_CLK_TCK")


class Service:
    """Within `with`: serves, with so many devices of each worker, jobs whose paths lie in `directory` or below a root."""

    def __init__(self, devices, binaries=BUILD / "bin", workers=1, roots=()):
        self._roots = [word for root in roots for word in ("--root", str(root))]
        self._devices = devices
        self._workers = workers
        self._trainyard = str(Path(binaries).resolve() / "trainyard")

    def __enter__(self):
        self._temporary = tempfile.TemporaryDirectory()
        self.directory = self._temporary.name
        self._up = subprocess.Popen(
            [self._trainyard, "up", "--workers", str(self._workers), "--devices-per-worker", str(self._devices), "--state", self.directory + "/state",
             "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--quiet", *self._roots],
            stdout=subprocess.PIPE, text=True, cwd=self.directory)
        ready = re.match(r"ready controller=(\S+)", self._up.stdout.readline())
        if not ready:
            self.__exit__()
            sys.exit("the service did not start")
        self.environment = dict(os.environ, TRAINYARD_CONTROLLER=ready[1])
        return self

    def __exit__(self, *_):
        self._up.send_signal(signal.SIGTERM)
        self._up.wait()
        self._temporary.cleanup()

    def run(self, *words):
        """What a command prints; ends the benchmark with its error."""
        done = subprocess.run([self._trainyard, *words], env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"trainyard {' '.join(words)}: {done.stderr}")
        return done.stdout


class TlsController:
    """A controller as other machines see it, at 127.0.0.1. Its files lie in `directory`, the authority's certificate as `authority`,
    and its page is at `metrics`."""

    def __init__(self, directory, metrics_listen="127.0.0.1:0"):
        self._directory = directory
        self._listen = "0.0.0.0:0"  # Loopback would have no TLS.
        self._metrics_listen = metrics_listen
        self._tool("init", "--host", "127.0.0.1")
        self.authority = next(str(path) for path in Path(directory).rglob("authority.pem"))
        self.start()

    def _tool(self, *words):
        return subprocess.run([CONTROLLER, "--state", "state", *words], cwd=self._directory, check=True, capture_output=True, text=True).stdout

    def reader(self):
        """The directory of a certificate that opens the page."""
        self._tool("reader", "--name", "bench", "--directory", "reader")
        return Path(self._directory) / "reader"

    def token(self, name, *words):
        """A file with a new one; `words` say what it is good for."""
        path = Path(f"{self._directory}/{name}")
        path.write_text(self._tool("token", "--name", name, *words), encoding="utf-8")
        time.sleep(1.1)  # The controller looks for such tokens once a second.
        return str(path)

    def start(self):
        with open(f"{self._directory}/log", "a", encoding="utf-8") as log:
            self._process = subprocess.Popen([CONTROLLER, "--state", "state", "--listen", self._listen, "--metrics-listen", self._metrics_listen],
                                             cwd=self._directory, stdout=subprocess.PIPE, stderr=log, text=True)
        ready = self._process.stdout.readline().split()
        if not ready:
            sys.exit(Path(f"{self._directory}/log").read_text(encoding="utf-8"))
        self._listen = ready[1].split("=")[1]
        self.address = self._listen.replace("0.0.0.0", "127.0.0.1")
        self.metrics = ready[2].split("=", 1)[1].replace("0.0.0.0", "127.0.0.1")

    def kill(self):
        self._process.kill()
        self._process.wait()

    def processor_seconds(self):
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def megabytes(self):
        return int(Path(f"/proc/{self._process.pid}/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
