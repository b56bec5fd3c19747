"""A service of a benchmark's own: `trainyard up` in a temporary directory."""
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRAINYARD = str(ROOT / "build/bin/trainyard")


class Service:
    """Within `with`: serves, with so many devices, jobs whose paths lie in `directory`."""

    def __init__(self, devices):
        self._devices = devices

    def __enter__(self):
        self._temporary = tempfile.TemporaryDirectory()
        self.directory = self._temporary.name
        self._up = subprocess.Popen(
            [TRAINYARD, "up", "--devices-per-worker", str(self._devices), "--state", self.directory + "/state",
             "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--quiet"],
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
        done = subprocess.run([TRAINYARD, *words], env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"trainyard {' '.join(words)}: {done.stderr}")
        return done.stdout
