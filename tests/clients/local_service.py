"""`trainyard up` with a home directory of its own. Its variables are set in this process, which then is its caller."""
import os
import pathlib
import signal
import subprocess
import tempfile

BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
SPEC = {
    "name": "tiny",
    "model": {"preset": "llama3-8b", "overrides": {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 2, "vocab": 256}},
    "precision": "F32",
    "batch": {"global": 4, "micro": 4, "sequence": 32},
    "data": {"synthetic": {}},
    "optimizer": {"adamw": {"learning_rate": 1e-3}},
    "steps": 20,
}


class LocalService:
    """Starts with its construction; `stop` ends it. `directory` is where relative paths of specs start."""

    def __init__(self):
        self._scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.directory = pathlib.Path(self._scratch.name)
        os.environ.update(HOME=self._scratch.name, XDG_CONFIG_HOME=self._scratch.name + "/config")
        for name in ("TRAINYARD_TOKEN_FILE", "TRAINYARD_AUTHORITY"):
            os.environ.pop(name, None)
        # The service ends with this process, however that ends.
        self.up = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", BIN / "trainyard", "up", "--devices-per-worker", "2", "--state", "state", "--listen",
             "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--quiet"], cwd=self.directory, stdout=subprocess.PIPE, text=True)
        ready = self.up.stdout.readline()
        if not ready.startswith("ready "):
            self.stop()
            raise AssertionError("trainyard up did not start")
        self.address = dict(word.split("=", 1) for word in ready.split()[1:])["controller"]
        os.environ["TRAINYARD_CONTROLLER"] = self.address

    def stop(self):
        self.up.send_signal(signal.SIGTERM)
        self.up.wait()
        self.up.stdout.close()
        self._scratch.cleanup()

    def trainyard(self, *words, stdin=""):
        """What a command prints."""
        ran = subprocess.run([BIN / "trainyard", *words], cwd=self.directory, input=stdin, capture_output=True, text=True, check=False,
                             timeout=60)
        if ran.returncode != 0:
            raise AssertionError(f"trainyard {' '.join(words)}: {ran.stderr}")
        return ran.stdout

    def kill_controller(self):
        """As a crash does; `up` starts it again."""
        children = pathlib.Path(f"/proc/{self.up.pid}/task/{self.up.pid}/children").read_text().split()
        controllers = [int(child) for child in children
                       if "trainyard-controller" in pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")[0]]
        if len(controllers) != 1:
            raise AssertionError(f"wanted one controller among {children}")
        os.kill(controllers[0], signal.SIGKILL)
