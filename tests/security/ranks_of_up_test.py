"""Proves that ranks of `trainyard up` neither read nor change what it keeps, though all of that lies below a root, that they still make
the directories of their jobs there, and that other users of the machine see nothing of a rank. In one test the trainer is a script that tries."""
import json
import os
import shutil
import signal
import stat
import unittest

from real_service import BIN, SPEC, RealService, until

TRAINER = """#!/usr/bin/python3
import os, pathlib, sys, time
if sys.argv[1] == "--measure":
    print('{"f32": 1e11, "bf16": 2e11, "f64": 5e10}')
    sys.exit()
state = pathlib.Path("STATE")
own = pathlib.Path(os.environ["TRAINYARD_RANK_DIRECTORY"])
mine = own.parent.parent
other = state / ("worker-1" if mine.name == "worker-0" else "worker-0")
def attempt(what, do):
    try:
        do()
        print("done:", what, flush=True)
    except PermissionError as error:
        print("refused:", what, flush=True)
attempt("the token", (state / "controller/token").read_text)
attempt("a grant", lambda: (state / "controller/grants/ZZZZZZZ1.json").write_text("{}"))
attempt("the grants", lambda: os.listdir(state / "controller/grants"))
attempt("the logs", lambda: os.listdir(state / "logs"))
attempt("an earlier worker", (state / "worker-7/worker_id").read_text)
attempt("another worker", (other / "worker_id").read_text)
attempt("its worker's id", lambda: open(mine / "worker_id", "r+"))
attempt("its orders", lambda: open(own / "launch.json", "r+"))
attempt("the login", (pathlib.Path(os.environ["HOME"]) / ".config/trainyard/kept").read_text)
attempt("the kernel's settings", lambda: open("/proc/sys/kernel/core_pattern", "w"))
attempt("config", (own / "config.json").read_text)
attempt("data", pathlib.Path("data.txt").read_text)
attempt("checkpoint", lambda: pathlib.Path("runs/one/new").write_text("x"))
attempt("profile", lambda: (state / "profiles/new").write_text("x"))
attempt("a thread's name", lambda: pathlib.Path(f"/proc/self/task/{os.getpid()}/comm").write_text("x"))
print("tried: all", flush=True)
time.sleep(1000)
"""
SECRETS = {"the token", "a grant", "the grants", "the logs", "an earlier worker", "another worker", "its worker's id", "its orders",
           "the login", "the kernel's settings"}
OPEN = {"config", "data", "checkpoint", "profile", "a thread's name"}


class Ranks(RealService):
    def setUp(self):
        super().setUp()
        os.umask(0o022)  # As most users have it.

    # Bug it must catch: a rank writes itself a grant, and is an admin.
    def test_ranks_of_up_see_and_change_nothing_of_it(self):
        programs, state = self.directory / "bin", self.directory / "state"
        tokens = self.directory / "home/.config/trainyard"
        for directory in (programs, state / "worker-7", tokens):
            directory.mkdir(parents=True)
        for name in ("trainyard", "trainyard-controller", "trainyard-worker"):
            shutil.copy(BIN / name, programs / name)
        (programs / "trainyard-trainer").write_text(TRAINER.replace("STATE", str(state)))
        (programs / "trainyard-trainer").chmod(0o755)
        for file in (state / "worker-7/worker_id", tokens / "kept", self.directory / "data.txt"):
            file.write_text("text")
        self.environment = {"HOME": str(self.directory / "home")}
        _, ready = self.start("up", programs / "trainyard", "up", "--workers", "2", "--state", "state", "--listen", "127.0.0.1:0",
                              "--metrics-listen", "127.0.0.1:0")
        self.address = ready["controller"]
        spec = SPEC.replace("STEPS", "5") + "checkpoint: {directory: runs/one, every_steps: 5}\n" + \
            f"profile: {{directory: {state}/profiles, start_step: 1, steps: 1}}\n"
        job = json.loads(self.trainyard("submit", "-", "-o", "jsonl", stdin=spec))["id"]
        until(lambda: "tried: all" in self.trainyard("logs", job), "the attempts")
        said = self.trainyard("logs", job)
        found = {kind: {line.split(f"{kind}: ", 1)[1] for line in said.splitlines() if f"{kind}: " in line} for kind in ("refused", "done")}
        self.assertEqual(found, {"refused": SECRETS, "done": OPEN}, said)
        self.trainyard("cancel", job)

    # Bug it must catch: who has another account on the machine reads the secret by which ranks know each other.
    def test_other_users_see_nothing_of_a_rank_and_the_ranks_user_gets_through(self):
        self.directory.chmod(0o711)
        (self.directory / "data").mkdir()
        as_another = ["--rank-user", "nobody"] if os.geteuid() == 0 else []
        if as_another:
            shutil.chown(self.directory / "data", "nobody")
        self.begin()
        with open(self.directory / "rack.token", "w", opener=lambda path, flags: os.open(path, flags, 0o600), encoding="utf-8") as file:
            file.write(self.trainyard("token", "create", "rack", "--role", "joiner"))
        words = ["w", "--join", "rack.token", "--root", "data", *as_another]
        worker, _ = self.start_worker(*words)
        spec = SPEC.replace("STEPS", "1000000") + "checkpoint: {directory: run, every_steps: 500}\n"
        job = json.loads(self.trainyard("submit", "-", "-o", "jsonl", stdin=spec))["id"]
        ranks = self.directory / "w/ranks"
        until(lambda: list(ranks.glob("*/ready")), "the rank")
        for path in [self.directory / "w", ranks, *ranks.rglob("*")]:
            mode = path.lstat().st_mode
            allowed = 0o011 if stat.S_ISDIR(mode) else 0
            self.assertEqual(mode & 0o077 & ~allowed, 0, f"{path} {mode:o}")
        checkpoint = until(lambda: list((self.directory / "data/run").rglob("manifest.json")), "a checkpoint")[0]
        self.assertEqual(checkpoint.stat().st_mode & 0o777, 0o644, "what a trainer writes has the modes that the user wanted")
        worker.send_signal(signal.SIGUSR2)
        worker.wait()
        self.start_worker(*words)
        self.assertIn("step", self.trainyard("logs", job))
        self.assertEqual(len(list(ranks.iterdir())), 1, "the same attempt goes on")
        self.trainyard("cancel", job)


if __name__ == "__main__":
    unittest.main()
