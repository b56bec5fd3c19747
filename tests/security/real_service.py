"""A service of real programs in a directory of its own, for tests that use it as its users do."""
import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
SPEC = """
name: tiny
model: {preset: llama3-8b, overrides: {layers: 2, hidden: 64, ffn: 128, heads: 4, kv_heads: 2, vocab: 256}}
precision: F32
batch: {global: 4, micro: 1, sequence: 32}
data: {synthetic: {}}
optimizer: {adamw: {learning_rate: 1.0e-3}}
steps: STEPS
devices: 1
"""


def until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.05)
    return value


class RealService(unittest.TestCase):
    environment = {}  # More, for all programs.

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)
        (self.directory / "home").mkdir()
        os.umask(0o077)

    def tool(self, *words):
        ran = subprocess.run([BIN / "trainyard-controller", "--state", "c", *words], cwd=self.directory, capture_output=True, text=True,
                             check=False, timeout=60, env={**os.environ, **self.environment})
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def start(self, name, *words, **more):
        """The words of its line `ready ...`. `more` is Popen's."""
        log = open(self.directory / f"{name}.log", "w", encoding="utf-8")
        self.addCleanup(log.close)
        process = subprocess.Popen([BIN / words[0], *words[1:]], cwd=self.directory, stdout=subprocess.PIPE, stderr=log, text=True,
                                   **{"env": {**os.environ, **self.environment}, **more})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)  # A worker takes its ranks along.
        line = process.stdout.readline()
        self.assertTrue(line.startswith("ready "), (self.directory / f"{name}.log").read_text())
        return process, dict(word.split("=", 1) for word in line.split()[1:])

    def start_controller(self, *words, listen="0.0.0.0:0", **more):
        self.controller, ready = self.start("controller", "trainyard-controller", "--state", "c", "--listen", listen, "--metrics-listen",
                                            listen, *words, **more)
        self.port = ready["controller"].rsplit(":", 1)[1]
        self.address = f"127.0.0.1:{self.port}"
        return ready

    def start_worker(self, name, *words):
        return self.start(name, "trainyard-worker", "--controller", self.address, "--state", name, "--devices", "1", "--cores", "0.5",
                          "--metrics-listen", "0.0.0.0:0", *words)

    def trainyard(self, *words, stdin="", home="home", fails=False):
        ran = subprocess.run([BIN / "trainyard", *words], cwd=self.directory, capture_output=True, text=True, input=stdin, check=False,
                             timeout=60, env={"HOME": str(self.directory / home), "TRAINYARD_CONTROLLER": self.address, **self.environment})
        self.assertEqual(ran.returncode != 0, fails, ran.stdout + ran.stderr)
        return ran.stderr if fails else ran.stdout

    def lines(self, *words):
        return [json.loads(line) for line in self.trainyard(*words, "-o", "jsonl").splitlines()]

    def begin(self):
        self.tool("init", "--host", "127.0.0.1")
        admin = self.tool("token", "--name", "alice", "--role", "admin")
        ready = self.start_controller()
        self.assertIn("alice: admin", self.trainyard("login", self.address, stdin=admin))
        return ready

    def submit(self, steps):
        return json.loads(self.trainyard("submit", "-", "-o", "jsonl", stdin=SPEC.replace("STEPS", str(steps))))["id"]
