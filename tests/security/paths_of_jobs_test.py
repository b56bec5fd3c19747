"""Paths of a job stay below the roots: specs whose paths climb, lead through links, or change under the rank's hands are run by the hundred, and strace
shows every file that their trainers open. None of them is the secret beside the root, none that is opened to be written lies outside."""
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import threading
import unittest

from real_service import BIN, RealService, until

SPECS = 200
SIZES = {"family": "llama", "layers": 1, "hidden": 32, "ffn": 32, "heads": 2, "kv_heads": 1, "vocab": 256}
BASE = {"name": "paths", "model": {"preset": "llama3-8b", "overrides": {"layers": 1, "hidden": 32, "ffn": 32, "heads": 2, "kv_heads": 1, "vocab": 256}},
        "precision": "F32", "batch": {"global": 1, "micro": 1, "sequence": 8}, "data": {"synthetic": {}},
        "optimizer": {"adamw": {"learning_rate": 1e-3}}, "steps": 1, "devices": 1}


class PathsOfJobs(RealService):
    def make_traps(self):
        self.root, self.outside = self.directory / "data", self.directory / "outside"
        for place in (self.root / "sub/deep", self.outside / "dir"):
            place.mkdir(parents=True)
        (self.outside / "secret.txt").write_text("secret " * 500, encoding="utf-8")
        (self.root / "text.txt").write_text("text " * 500, encoding="utf-8")
        links = {"out": self.outside, "up": "..", "sub/up": "../..", "file": self.outside / "secret.txt", "etc": "/etc", "loop": "loop", "self": "/proc/self",
                 "sub/deep/far": "../../../outside", "chain": "out/dir/../secret.txt", "root": "/", "shm": "/dev/shm"}
        for name, target in links.items():
            os.symlink(target, self.root / name)
        return sorted(links)

    def paths(self, rng, links):
        """A path that wants to get out, or through."""
        steps = ["..", ".", "sub", "sub/deep", "outside", "secret.txt", "dir", "text.txt", "etc", "passwd", "flip", *links]
        kind = rng.randrange(4)
        if kind == 0:
            return rng.choice(links) + rng.choice(["", "/secret.txt", "/dir", "/outside/secret.txt", "/../outside/secret.txt", "/passwd"])
        if kind == 1:
            return "/".join(rng.choice(steps) for _ in range(rng.randint(1, 6)))
        if kind == 2:
            return rng.choice(["flip", "flip/secret.txt", "flip/run", "sub/../flip/secret.txt"])
        return str(self.root / rng.choice(steps)) + "/" + rng.choice(steps)

    def spec(self, rng, links):
        path = self.paths(rng, links)
        job = json.loads(json.dumps(BASE))
        rng.choice([lambda: job.update(checkpoint={"directory": path, "every_steps": 1}), lambda: job.update(data={"text": {"path": path}}),
                    lambda: job.update(init_from=path), lambda: job.update(model={"import": path, "architecture": SIZES}), lambda: job.update(profile={"directory": path, "start_step": 1, "steps": 1})])()
        return json.dumps(job)

    def flip(self, stop):
        """A name that is a directory in one moment and a link that leads out in the next."""
        name, link, real = self.root / "flip", self.root / ".link", self.root / ".real"
        os.symlink(self.outside, link)
        real.mkdir()
        (real / "secret.txt").write_text("text " * 500, encoding="utf-8")
        here = link
        while not stop.wait(0.0005):
            try:
                os.rename(here, name)
                os.rename(name, here)
            except OSError:  # A job has just made a directory of that name.
                shutil.rmtree(name, ignore_errors=True)
                continue
            here = real if here is link else link

    def calls(self):
        """What each trainer has called, its threads' calls included, as the kernel knows it: {process: lines}."""
        threads = {file.suffix[1:]: file.read_text(encoding="utf-8", errors="replace").splitlines() for file in self.directory.glob("trace.*")}

        def after(lines):
            for line in lines:
                made = re.match(r"(?:clone3?|v?fork)\(.*\) = (\d+)$", line)
                yield line
                if made:
                    yield from after(threads.get(made.group(1), []))

        result = {}
        for thread, lines in threads.items():
            begun = [at for at, line in enumerate(lines) if re.match(r'execve\("[^"]*/trainyard-trainer", .* = 0$', line)]
            if begun:
                result[thread] = list(after(lines[begun[-1] + 1:]))
        return result

    def end_of_jobs(self):
        """Whether all have ended. A job that could once use a directory waits for the directory's return, which is not of this test."""
        jobs = self.lines("list", "--limit", "1000")
        for job in jobs:
            if job["state"] == "JOB_STATE_RECOVERING":
                self.trainyard("cancel", job["id"])
        return all(job["state"] in ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED") for job in jobs)

    def test_no_path_leads_out(self):
        links = self.make_traps()
        root = str(self.directory.resolve())
        home = {"HOME": f"{root}/home"}
        self.start_controller(listen="127.0.0.1:0", env=home)
        worker = ["trainyard-worker", "--controller", self.address, "--state", f"{root}/w", "--devices", "2", "--cores", "2", "--root", str(self.root)]
        strace, _ = self.start("worker", "/usr/bin/strace", "-ff", "--seccomp-bpf", "-y", "-e", "trace=execve,clone,clone3,fork,vfork,open,openat,openat2",
                               "-e", "signal=none", "-o", "trace", str(BIN / worker[0]), *worker[1:], env=home)
        child = int(pathlib.Path(f"/proc/{strace.pid}/task/{strace.pid}/children").read_text(encoding="utf-8").split()[0])
        self.addCleanup(os.kill, child, signal.SIGTERM)
        stop = threading.Event()
        flipper = threading.Thread(target=self.flip, args=(stop,))
        flipper.start()
        self.addCleanup(flipper.join)
        self.addCleanup(stop.set)
        seed = random.SystemRandom().randrange(2**32)
        print("seed", seed)
        rng = random.Random(seed)
        taken = 0
        for _ in range(SPECS):
            ran = subprocess.run([BIN / "trainyard", "submit", "-", "-q"], cwd=root, input=self.spec(rng, links), text=True, capture_output=True,
                                 check=False, timeout=60, env={**home, "TRAINYARD_CONTROLLER": self.address})
            self.assertIn(ran.returncode, (0, 1), ran.stderr)
            taken += ran.returncode == 0
        until(self.end_of_jobs, "the end of all jobs", 200)
        succeeded = [job for job in self.lines("list", "--limit", "1000") if job["state"] == "JOB_STATE_SUCCEEDED"]
        trainers, found = self.calls(), []
        self.assertGreater(len(trainers), SPECS // 10)
        for line in itertools.chain(*trainers.values()):
            self.assertNotRegex(line, r'open(at)?\((AT_FDCWD<[^>]*>, )?"[^/]', "a path is taken from the current directory, which jobs may write")
            if call := re.match(r"open(?:at2?)?\((.*)\) = \d+<(.*?)>", line):
                found.append((call.group(2), bool(re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", call.group(1)))))
        self.assertGreater(len(succeeded), 2, "no path was good: nothing is shown")
        self.assertTrue([path for path, writes in found if writes and path.startswith(f"{self.root}/")], "the trace shows what is written")
        for path, writes in found:
            self.assertFalse(path.startswith(str(self.outside)), path)
            if writes:
                inside = path.startswith((f"{self.root}/", f"{root}/w/ranks/", "/dev/", "/proc/"))
                self.assertTrue(inside and not path.startswith("/dev/shm"), path)
        left = sorted(str(path.relative_to(self.outside)) for path in self.outside.rglob("*"))
        self.assertEqual(left, ["dir", "secret.txt"])
        print(f"{SPECS} specs, {taken} taken, {len(trainers)} trainers, {len(succeeded)} succeeded, {len(found)} files opened")


if __name__ == "__main__":
    unittest.main()
