"""Rehearses a day with a GPU: the bundle, by the lines that scripts/gpu_bundle.sh prints, in a
minimal root (minimal_root.py).

First the programs as they are, which find a driver that has no device: each must start, and lack
nothing but the device. Then a device that is none: programs that print what they would print on one
that is well, and on one with each kind of failure.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

import fake_programs as fakes
import minimal_root
from fake_device import FakeDevice

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TRAINYARD_BUILD"])
CUDA = pathlib.Path(os.environ["TRAINYARD_CUDA_ROOT"])
PLACE = BUILD / "gpu_rehearsal/root/check"
BUNDLE = "build/trainyard-gpu.tar.xz"
SKIPPED = 77
PYTHON = "/usr/bin/python3"
NEEDS = r"error while loading shared libraries.*|.*No such file or directory.*|Traceback.*"


class Rehearsal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(PLACE.parents[1], ignore_errors=True)
        minimal_root.make(PLACE.parent)
        said = subprocess.run([ROOT / "scripts/gpu_bundle.sh"], capture_output=True, text=True,
                              check=False)
        assert said.returncode == 0, said.stdout + said.stderr
        cls.first, cls.second = re.findall("^timeout .*$", said.stdout.replace(
            str(BUILD / "trainyard-gpu.tar.xz"), BUNDLE), re.M)
        cls.device = FakeDevice(PLACE / "fake", PYTHON)
        for name in ("compute-sanitizer", "ncu"):
            cls.device.program(name, fakes.TOOLS[name])
        for directory in ("build", "scripts"):
            (PLACE / directory).mkdir()
        shutil.copy(ROOT / "scripts/gpu_check.sh", PLACE / "scripts")

    def run_line(self, line, out):
        begin = time.monotonic()
        ran = minimal_root.run(PLACE.parent, CUDA, f"export OUT=/check/{out}; {line}", 500)
        seconds = time.monotonic() - begin
        print(f"figure: {out}: {seconds:.0f} s")
        limit = int(re.search(r"timeout -k 5 (\d+)", line)[1])
        self.assertLess(seconds, limit)
        files = list((PLACE / out).iterdir())
        self.assertLessEqual(len(files), 8)
        self.assertLessEqual(max(file.stat().st_size for file in files), 16 << 20)
        self.results = json.loads((PLACE / out / "results.json").read_text())
        self.outcomes = {step["name"]: step["outcome"] for step in self.results["steps"]}
        self.screen = (PLACE / out / "summary.txt").read_text()
        return ran

    def not_passed(self):
        return {name: outcome for name, outcome in self.outcomes.items() if outcome != "passed"}

    def fake_bundle(self, programs):
        """In the place of the real one. It is not compressed much: only its names matter."""
        tree = PLACE.parents[1] / "fakes/trainyard"
        shutil.rmtree(tree, ignore_errors=True)
        for name, python in programs.items():
            FakeDevice(tree / "made", PYTHON).program("one", python)
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(tree / "made/one", tree / name)
        shutil.rmtree(tree / "made")
        shutil.copytree(BUILD / "gpu_bundle/trainyard/scripts", tree / "scripts")
        for name, python in fakes.SCRIPTS.items():
            (tree / "scripts/gpu_check" / name).write_text(python)
        self.device.program("torch.py", "")
        self.device.program("ldd", fakes.LDD)
        subprocess.run(["tar", "--create", "--use-compress-program=xz -0", "--directory",
                        tree.parent, "--file", PLACE / BUNDLE, "trainyard"], check=True)

    def real_bundle(self):
        shutil.copy(BUILD / "trainyard-gpu.tar.xz", PLACE / BUNDLE)
        for name in ("torch.py", "ldd"):
            (self.device.directory / name).unlink(missing_ok=True)

    def test_the_real_programs_lack_nothing_but_a_device(self):
        self.real_bundle()
        ran = self.run_line(self.first, "real")
        self.assertEqual(ran.returncode, 1, ran.stdout)
        log = (PLACE / "real/check.log").read_text()
        self.assertEqual(re.findall(NEEDS, log), [])
        self.assertEqual(self.outcomes["libraries"], "passed", ran.stdout)
        passed = {name for name, outcome in self.outcomes.items() if outcome == "passed"}
        self.assertTrue({f"predict gpt2-124m, {rest}" for rest in
                         ("16 x 1024", "64 x 1024", "16 x 1024, any order")} <= passed, passed)
        kinds = {step.get("kind") for step in self.results["steps"]
                 if step["outcome"].startswith("failed")}
        self.assertEqual(kinds, {"a library has the wrong version", "no device can be used"},
                         self.screen)
        self.assertIn("driver 0 is older than 13000", self.screen)

    def test_a_missing_library_is_seen(self):
        self.real_bundle()
        unpack = f"python3 -m tarfile -e {BUNDLE} . && rm trainyard/lib/libdnnl.so.2*; "
        line = self.first.replace(f" {BUNDLE}", "").replace("scripts/", "trainyard/scripts/")
        self.run_line(unpack + line, "missing")
        self.assertIn(" 1. a library is missing: libraries: libdnnl.so.2 not found (", self.screen)
        self.assertEqual({outcome.partition(":")[0] for outcome in self.outcomes.values()},
                         {"failed", "skipped"})

    def test_a_device_that_is_well(self):
        self.fake_bundle(fakes.WELL)
        ran = self.run_line(self.first, "well")
        self.assertEqual((ran.returncode, self.not_passed()), (0, {}), ran.stdout)

    def test_a_device_with_each_kind_of_failure_and_after_a_mend(self):
        self.fake_bundle({**fakes.WELL, **fakes.ILL})
        ran = self.run_line(self.first, "ill")
        self.assertEqual(ran.returncode, 1, ran.stdout)
        numbered = re.findall(r"^ \d\. (.*?): ", self.screen, re.M)
        self.assertEqual(list(dict.fromkeys(numbered))[:len(fakes.ILL_KINDS)], fakes.ILL_KINDS)
        self.assertEqual(self.outcomes["products of gpt2-124m, 16 x 1024"],
                         "failed: not done in 20 s")
        self.fake_bundle(fakes.WELL)
        line = self.second.replace("RESULTS", "ill/results.json").replace("MODEL", "llama3.2-1b")
        ran = self.run_line(line, "mended")
        self.assertEqual((ran.returncode, self.not_passed()), (0, {}), ran.stdout)
        self.assertIn("kernels 3 of 6", self.outcomes)


if __name__ == "__main__":
    if not minimal_root.is_possible():
        print("skipped: a minimal root wants a Debian 12, and to be root")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
