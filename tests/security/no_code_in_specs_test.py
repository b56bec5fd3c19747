"""A job's spec can make no program run but the trainer, with no other arguments, and puts nothing into its environment. Specs with what shells,
loaders and libraries would take for an order are submitted by the hundred; strace sees every program that the worker and its ranks start, and fails
the test on one that is not on the list below. So does a file that one of the orders makes."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import unittest

from real_service import BIN, RealService, until

SPECS = 100
ALLOWED = {"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "TZ", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
           "TRAINYARD_RANK_DIRECTORY"}
CANARY = "canary-6f1d2c"


def orders(pwned):
    return [f"$(touch {pwned})", f"`touch {pwned}`", f"; touch {pwned}", f"| touch {pwned}", f"\ntouch {pwned}\n", f"&& touch {pwned} &&",
            f"a\" --fault=kill:1 \"{pwned}", "--measure", "--fault=exit:1", "--generate=/", "-h", "LD_PRELOAD=/tmp/x.so", "\nLD_PRELOAD=/tmp/x.so\n",
            "NCCL_NET_PLUGIN=/tmp/x.so", "PATH=/tmp", "/bin/sh", "../../bin/sh", "/proc/self/exe", "/proc/self/environ", "/dev/stdin",
            "%s%n%s%n", "{{7*7}}", "${HOME}", "~root", "\u202e/bin/sh", "x" * 3000, "a b", "'", '"', "\\", "*", "?", "#", "\t"]


def spec(rng, order):
    job = {"name": "fuzz", "model": {"preset": "llama3-8b", "overrides": {"layers": 1, "hidden": 32, "ffn": 32, "heads": 2, "kv_heads": 1, "vocab": 256}},
           "precision": "F32", "batch": {"global": 1, "micro": 1, "sequence": 8}, "data": {"synthetic": {}},
           "optimizer": {"adamw": {"learning_rate": 1e-3}}, "steps": 2, "devices": 1}
    places = {"name": lambda: job.update(name=order),
              "preset": lambda: job["model"].update(preset=order),
              "checkpoint": lambda: job.update(checkpoint={"directory": order, "every_steps": 1}),
              "text": lambda: job.update(data={"text": {"path": order}}),
              "init_from": lambda: job.update(init_from=order),
              "import": lambda: job["model"].update({"import": order}),
              "profile": lambda: job.update(profile={"directory": order, "start_step": 1, "steps": 1}),
              "field": lambda: job.update({order: order}),
              "override": lambda: job["model"]["overrides"].update({order: 1})}
    # Most specs must be taken, or nothing is shown.
    for place in rng.choices(list(places), weights=[1, 1, 9, 7, 6, 1, 6, 1, 1], k=rng.choice([1, 1, 2])):
        places[place]()
    return json.dumps(job)


class NoCodeInSpecs(RealService):
    def programs(self):
        """Of every execve that succeeded: the arguments, and the environment."""
        found = []
        # A file for each thread: in one for all, a call may be begun in one line and end in another.
        for line in "".join(file.read_text(encoding="utf-8", errors="replace") for file in self.directory.glob("trace.*")).splitlines():
            call = re.search(r'execve\("((?:[^"\\]|\\.)*)", \[(.*?)\], \[(.*)\]\) = 0', line)
            if call is None:
                self.assertNotRegex(line, r"execve(at)?\(.*\) = 0", "a line that this test cannot read")
                continue
            strings = [re.findall(r'"((?:[^"\\]|\\.)*)"', part) for part in call.groups()[1:]]
            found.append((call.group(1), strings[0], strings[1]))
        return found

    def check(self, path, arguments, environment, root):
        state = f"{root}/w/ranks/"
        if arguments[1:2] == ["--supervise"]:
            self.assertEqual((path, len(arguments)), (str(BIN / "trainyard-worker"), 3))
            self.assertTrue(arguments[2].startswith(state), arguments)
        elif arguments[1:2] == ["--controller"]:
            return  # The daemon itself, as this test starts it.
        else:
            self.assertEqual((path, arguments[0]), (str(BIN / "trainyard-trainer"),) * 2)
            self.assertTrue(arguments[1] == "--measure" or re.fullmatch(re.escape(state) + r"j-[a-z0-9]+\.\d+\.\d+/config\.json", arguments[1]), arguments)
        self.assertLessEqual({entry.split("=", 1)[0] for entry in environment}, ALLOWED)
        self.assertNotIn(CANARY, " ".join(environment))

    def test_nothing_but_trainers_is_started(self):
        root = str(self.directory.resolve())
        home = {"HOME": f"{root}/home"}
        self.start_controller(listen="127.0.0.1:0", env=home)
        worker = ["trainyard-worker", "--controller", self.address, "--state", f"{root}/w", "--devices", "2", "--cores", "2", "--root", f"{root}/data"]
        (self.directory / "data").mkdir()
        traced = ["-ff", "--seccomp-bpf", "-v", "-s", "5000", "-e", "trace=execve,execveat", "-e", "signal=none", "-o", "trace", str(BIN / worker[0]), *worker[1:]]
        strace, _ = self.start("worker", "/usr/bin/strace", *traced,
                               env={**home, "PATH": "/usr/bin:/bin", "LANG": "C", "AWS_SECRET_ACCESS_KEY": CANARY, "LD_BIND_NOW": "1", "PYTHONPATH": CANARY})
        # strace itself ignores what asks it to end as long as the worker lives.
        children = (pathlib.Path(f"/proc/{strace.pid}/task/{strace.pid}/children")).read_text(encoding="utf-8").split()
        self.addCleanup(os.kill, int(children[0]), signal.SIGTERM)
        seed = random.SystemRandom().randrange(2**32)
        print("seed", seed)
        rng = random.Random(seed)
        pwned = f"{root}/pwned"
        taken = []
        for _ in range(SPECS):
            ran = subprocess.run([BIN / "trainyard", "submit", "-", "-o", "jsonl"], cwd=root, input=spec(rng, rng.choice(orders(pwned))), text=True,
                                 capture_output=True, check=False, timeout=60, env={**home, "TRAINYARD_CONTROLLER": self.address})
            self.assertIn(ran.returncode, (0, 1, 2), ran.stderr)
            if ran.returncode == 0:
                taken.append(json.loads(ran.stdout)["id"])
        self.assertGreater(len(taken), SPECS // 5, "too few specs are taken for this to show anything")
        ended = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")
        until(lambda: all(job["state"] in ended for job in self.lines("list", "--limit", "1000")), "the end of all jobs", 180)
        self.assertFalse(os.path.exists(pwned), "an order was carried out")
        programs = self.programs()
        trainers = {arguments[1] for path, arguments, _ in programs if path.endswith("trainyard-trainer") and arguments[1] != "--measure"}
        self.assertEqual(len(trainers), len(taken))
        for program in programs:
            self.check(*program, root)
        print(f"{SPECS} specs, {len(taken)} taken, {len(programs)} programs started, {len(trainers)} of them trainers")


if __name__ == "__main__":
    unittest.main()
