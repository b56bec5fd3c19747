"""Proves a whole check on a device that is none: every step of both calls runs or is named,
whatever the programs do, and the summary says what to mend first."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/gpu_check"), str(ROOT / "tests/gpu_check")]

import calls  # noqa: E402
import cases  # noqa: E402
import fake_programs as fakes  # noqa: E402
from fake_device import FakeDevice  # noqa: E402

SUMMARY = 15  # Seconds of a call that no group has.


class Check(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name) / "root"
        self.out = pathlib.Path(temporary.name) / "out"
        self.out.mkdir()
        self.fake = FakeDevice(pathlib.Path(temporary.name) / "fake")
        for name, python in fakes.TOOLS.items():
            self.fake.program(name, python)
        for name, python in fakes.WELL.items():
            self.becomes(name, python)
        shutil.copytree(ROOT / "scripts/gpu_check", self.root / "scripts/gpu_check")
        for name, python in fakes.SCRIPTS.items():
            (self.root / "scripts/gpu_check" / name).write_text(python)
        self.fake.program("torch.py", "")  # All that is asked is whether there is one.

    def becomes(self, name, python):
        FakeDevice(self.root / "programs").program("one", python)
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.root / "programs/one", path)

    def smi(self, old, new):
        path = self.fake.directory / "nvidia-smi"
        path.write_text(path.read_text().replace(old, new))

    def command(self, *options, scale=1):
        return [sys.executable, self.root / "scripts/gpu_check/main.py", "--root", self.root,
                "--out", self.out, "--scale", str(scale), *options]

    def run_call(self, *options, scale=1):
        ran = subprocess.run(self.command(*options, scale=scale), env=self.fake.environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=300, check=False)
        self.results = json.loads((self.out / "results.json").read_text())
        self.outcomes = {step["name"]: step["outcome"] for step in self.results["steps"]}
        self.assertEqual(len(self.outcomes), len(self.results["steps"]), "a name is one step's")
        self.assertLessEqual(len(list(self.out.iterdir())), 8)
        self.assertIn((self.out / "summary.txt").read_text(), ran.stdout)
        return ran

    def first_results(self):
        """Of a call before, where another call does not replace them."""
        kept = self.out.parent / "first.json"
        shutil.copy(self.out / "results.json", kept)
        return "--after", str(kept)

    def not_passed(self):
        return {name: outcome for name, outcome in self.outcomes.items() if outcome != "passed"}

    def test_both_calls_pass_where_all_is_well(self):
        ran = self.run_call()
        self.assertEqual((ran.returncode, self.not_passed()), (0, {}), ran.stdout)
        self.assertEqual(self.results["machine"]["name"], "Fake H200")
        self.assertEqual(self.results["machine"]["trainyard"], "trainyard 0.1.0")
        self.assertIn("Nothing failed.", ran.stdout)
        order = ["libraries", "versions", "ceilings by PyTorch", "memcheck of a tiny step",
                 "kernels 1 of 6", "training", "curve of gpt2-124m, 1 x 1024",
                 "layer of deepseek_v3, 1 x 1024", "train gpt2-124m, 16 x 1024",
                 "products of llama2-7b of 16 layers, 1 x 4096",
                 "PyTorch, compiled, llama3.2-1b, 4 x 4096",
                 "slowest kernels of a layer of llama3.2-1b, 4 x 4096", "through the service"]
        self.assertEqual([name for name in self.outcomes if name in order], order)
        ran = self.run_call(*self.first_results(), "--changed", "llama3.2-1b")
        self.assertEqual((ran.returncode, self.not_passed()), (0, {}), ran.stdout)
        rows = [name for name in self.outcomes if name.startswith("train ")]
        self.assertEqual(rows, ["train llama3.2-1b, 4 x 4096",
                                "train llama3.2-1b, 4 x 4096, FP8_DELAYED",
                                "train llama3.2-1b, 4 x 4096, any order",
                                "train gpt2-124m, 16 x 1024"])

    def test_the_groups_of_a_call_fit_into_it(self):
        self.assertLessEqual(sum(calls.FIRST.values()) + SUMMARY, calls.SECONDS[1])
        self.assertLessEqual(sum(calls.SECOND.values()), calls.SECONDS[2])
        self.assertLessEqual(calls.SECONDS[1], 400)
        self.assertLessEqual(calls.SECONDS[2], 190)

    def test_a_call_in_which_everything_hangs_ends_in_time(self):
        for name in fakes.WELL:
            if name != "bin/trainyard-trainer":
                self.becomes(name, fakes.HANGS)
        for name in ("compute-sanitizer", "ncu"):
            self.fake.program(name, fakes.HANGS)
        for name in fakes.SCRIPTS:
            (self.root / "scripts/gpu_check" / name).write_text(fakes.HANGS)
        begin = time.monotonic()
        self.run_call(scale=0.1)
        # A program's end, the probe and the sampler take the time of a machine, not of the scale.
        self.assertLess(time.monotonic() - begin, 0.1 * calls.SECONDS[1] + 40)
        limits = {"curve of gpt2-124m, 1 x 1024": 20, "layer of mamba2, 1 x 1024": 35,
                  "kernels 1 of 6": 45}
        for name, limit in limits.items():
            told = re.match(r"failed: not done in ([\d.]+) s", self.outcomes[name])
            self.assertTrue(0.08 * limit <= float(told[1]) <= 0.1 * limit, told[0])

    def test_each_kind_of_failure_is_named_and_in_order(self):
        for name, python in fakes.ILL.items():
            self.becomes(name, python)
        ran = self.run_call(scale=0.5)
        self.assertEqual(ran.returncode, 1)
        screen = (self.out / "summary.txt").read_text().splitlines()
        self.assertLessEqual(len(screen), 24)
        self.assertLessEqual(max(map(len, screen)), 100)
        self.assertEqual(screen[1], "Mend first:")
        kinds = [line.partition(". ")[2].partition(": ")[0] for line in screen[2:]
                 if line[2:4] == ". "]
        self.assertEqual(list(dict.fromkeys(kinds))[:len(fakes.ILL_KINDS)], fakes.ILL_KINDS)
        told = "\n".join(screen)
        self.assertIn("cudnn 91000 is older than 91800", told)
        self.assertIn("kernels 3 of 6: CUDA error: an illegal memory access", told)
        self.assertIn("the CPU's: layer of llama3.2-1b of 1 layers, 1 x 1024 (and 4 more): 1 ops, fi",
                      told)
        # What is right is measured all the same.
        self.assertIn("train gpt2-124m, 16 x 1024: 448876 tokens/s", told)

    def test_the_second_call_repeats_what_failed_under_the_memory_checker(self):
        for name, python in fakes.ILL.items():
            self.becomes(name, python)
        self.run_call(scale=0.5)
        before = self.first_results()
        self.becomes("bench/lockstep", fakes.LOCKSTEP)  # It has been mended.
        self.run_call(*before, "--changed", "llama3.2-1b", scale=0.5)
        self.assertEqual(self.outcomes["layer of llama3.2-1b of 1 layers, 1 x 1024"], "passed")
        self.assertEqual(self.outcomes["train llama3.2-1b, 4 x 4096"], "passed")
        again = [name for name in self.outcomes if name.endswith(", under memcheck")]
        self.assertEqual(again, ["kernels 3 of 6, under memcheck",
                                 "train gpt2-124m, 64 x 1024, under memcheck",
                                 "train llama2-7b of 16 layers, 1 x 4096, under memcheck",
                                 "train llama2-7b of 16 layers, 1 x 4096, FP8_BLOCKWISE, under "
                                 "memcheck"])
        self.assertIn("train gpt2-124m, 64 x 1024", self.not_passed())
        self.assertIn("train gpt2-124m, 16 x 1024", self.outcomes)

    def test_a_row_that_fails_again_is_run_small_under_the_memory_checker(self):
        fails = "if '--steps' in sys.argv and '12' in sys.argv and '64' in sys.argv:\n" \
                "    sys.exit('error: CUDA error: an illegal memory access')\n"
        self.becomes("bench/train_step", fakes.STEP.replace("for step,", fails + "for step,"))
        self.run_call()
        self.run_call(*self.first_results())
        names = list(self.outcomes)
        row = "train gpt2-124m, 64 x 1024"
        # The first row of others stands beside the failed one.
        self.assertEqual([name for name in names if name.startswith("train ")],
                         [row, "train gpt2-124m, 16 x 1024", f"{row}, under memcheck"])
        checked = next(step for step in self.results["steps"] if step["name"] == f"{row}, under memcheck")
        for words in ("--tool memcheck", "--micro 1", "--layers 1", "--steps 1", "--eager"):
            self.assertIn(words, checked["command"])

    def test_a_row_that_only_lacks_its_gate_is_not_checked(self):
        self.becomes("bench/lockstep", "import sys; sys.exit('error: none today')")
        self.run_call()
        self.run_call(*self.first_results())
        self.assertIn("no speed, because", self.outcomes["train gpt2-124m, 16 x 1024"])
        self.assertEqual([name for name in self.outcomes if name.startswith("train ") and
                          name.endswith(", under memcheck")], [])

    def test_what_a_model_had_before_its_change_does_not_count(self):
        self.run_call()
        before = self.first_results()
        self.becomes("bench/lockstep", "import sys; sys.exit('error: none today')")
        self.run_call(*before, "--changed", "llama3.2-1b")
        self.assertIn("no speed, because 'layer of llama3.2-1b",
                      self.outcomes["train llama3.2-1b, 4 x 4096"])
        self.assertEqual(self.outcomes["train gpt2-124m, 16 x 1024"], "passed")

    def test_a_missing_library_ends_the_check_and_is_named(self):
        self.fake.program("ldd", fakes.LDD + "print('\\tlibcudnn.so.9 => not found')")
        ran = self.run_call()
        self.assertEqual(ran.returncode, 1)
        why = "libcudnn.so.9 not found (train_step)"
        self.assertEqual(self.outcomes.pop("libraries"), f"failed: {why}")
        self.assertEqual(set(self.outcomes.values()), {f"skipped: {why}"})
        self.assertIn(f" 1. a library is missing: libraries: {why}", ran.stdout)

    def test_each_figure_has_a_gate_of_its_own(self):
        wrong = "if case == 'gpt2-124m' and '1' in sys.argv and 'true' in sys.argv:\n" \
                "    curve = [(9, 9)] * 20\nfor step,"
        self.becomes("bench/train_step", fakes.STEP.replace("for step,", wrong))
        self.run_call()
        self.assertIn("a CPU has", self.outcomes["curve of gpt2-124m, 1 x 1024"])
        untrusted = {name for name in self.not_passed() if name.startswith("train ")}
        self.assertEqual(untrusted, {"train gpt2-124m, 16 x 1024", "train gpt2-124m, 64 x 1024"})
        for step in self.results["steps"]:
            if step["name"] in untrusted:
                self.assertIn("no speed, because 'curve of gpt2-124m, 1 x 1024'", step["outcome"])
                self.assertNotIn("tokens_per_second", step)
                self.assertEqual(step["untrusted"]["tokens_per_second"], 448876)

    def test_every_speed_has_a_gate(self):
        self.becomes("bench/lockstep", "import sys; sys.exit('error: none today')")
        self.run_call()
        rows = [step for step in self.results["steps"] if step["name"].startswith("train ")]
        self.assertGreaterEqual(len(rows), len(cases.ROWS))
        for row in rows:
            self.assertIn("no speed, because", row["outcome"])
            self.assertNotIn("tokens_per_second", row)

    def test_predictions_are_of_the_device_that_is_there(self):
        self.smi("Fake H200", "NVIDIA H100 80GB HBM3")
        self.run_call()
        asked = [step["command"] for step in self.results["steps"]
                 if step["name"].startswith(("predict ", "layer "))]
        self.assertGreater(len(asked), 8)
        for command in asked:
            self.assertIn("--gpu h100", command)
        for step in self.results["steps"]:
            if step["name"] in map("train {}".format, cases.ROWS):
                self.assertEqual(step["predicted_ms"], 36)
                # Products in 8 bits have a ceiling that is twice as high.
                of_ceiling = step["mfu_of_ceiling_percent"]
                self.assertTrue(20 < of_ceiling < 30 if "FP8" in step["name"] else of_ceiling > 40)

    def test_what_the_device_has_no_memory_for_is_open_and_no_failure(self):
        self.smi("143771", "61000")
        ran = self.run_call()
        self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertEqual(self.outcomes["train llama2-7b of 16 layers, 1 x 4096"],
                         "open: needs 70 GiB, the device has 60")
        self.smi("61000", "[N/A]")
        self.assertEqual(self.run_call().returncode, 0)
        self.assertEqual(self.not_passed(), {})

    def test_what_an_earlier_check_found_is_kept(self):
        self.run_call()
        first = (self.out / "results.json").read_bytes()
        self.fake.is_now("gone")
        self.run_call()
        self.assertEqual((self.out / "results.1.json").read_bytes(), first)
        self.assertNotEqual((self.out / "results.json").read_bytes(), first)

    def test_whoever_stops_watching_ends_nothing(self):
        ran = subprocess.run(["bash", "-c", '"$@" | head -1', "bash", *self.command()],
                             env=self.fake.environment(), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        self.assertEqual(ran.stderr, "")
        results = json.loads((self.out / "results.json").read_text())
        self.assertEqual({step["outcome"] for step in results["steps"]}, {"passed"})

    def test_a_signal_ends_the_step_and_all_it_started_and_names_the_rest(self):
        child_file = self.out / "child"
        self.becomes("bench/matmul_search", f"""import pathlib, subprocess, time
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
pathlib.Path({str(child_file)!r}).write_text(str(child.pid))
print("so far", flush=True)
time.sleep(1000)""")
        check = subprocess.Popen(self.command(), env=self.fake.environment(),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 200  # A busy machine needs most of a minute for the steps before.
        while not (child_file.exists() and child_file.read_text()) and time.monotonic() < end:
            time.sleep(0.02)
        child = int(child_file.read_text())
        check.send_signal(signal.SIGTERM)
        self.assertEqual(check.communicate(timeout=60)[1], "")
        self.assertEqual(check.returncode, 1)
        self.assertFalse(pathlib.Path(f"/proc/{child}").exists())
        steps = json.loads((self.out / "results.json").read_text())["steps"]
        outcomes = {step["name"]: step["outcome"] for step in steps}
        self.assertEqual(outcomes["products of gpt2-124m, 16 x 1024"],
                         "failed: interrupted by SIGTERM")
        self.assertEqual(outcomes["through the service"], "skipped: interrupted by SIGTERM")
        self.assertIn("so far", (self.out / "check.log").read_text())
        self.assertTrue((self.out / "summary.txt").exists())

    def test_a_program_that_dies_or_prints_rubbish_fails_alone(self):
        self.becomes("bin/cuda_training_test", "import os; os.kill(os.getpid(), 6)")
        self.becomes("bench/matmul_search", "print('product')")
        self.run_call()
        wrong = self.not_passed()
        self.assertEqual(wrong.pop("training"), "failed: SIGABRT")
        self.assertEqual(set(wrong), {name for name in self.outcomes
                                      if name.startswith("products of")})
        self.assertEqual(set(wrong.values()), {"failed: its output cannot be read: no product"})

    def test_a_device_that_dies_ends_the_check_at_once_and_by_name(self):
        mood = self.fake.directory / "mood"
        self.becomes("bench/matmul_search", f"import pathlib, sys\n"
                     f"pathlib.Path({str(mood)!r}).write_text('gone'); sys.exit(1)")
        ran = self.run_call()
        self.assertEqual(ran.returncode, 1)
        names = list(self.outcomes)
        died = names.index("products of gpt2-124m, 16 x 1024")
        self.assertIn("the device died", self.outcomes[names[died]])
        for name in names[died + 1:]:
            self.assertIn("skipped: the device died in products of gpt2", self.outcomes[name])
        self.assertIn("through the service", names[died + 1:])
        self.assertIn(" 1. no device can be used: products of gpt2", ran.stdout)

    def test_without_a_device_all_is_named(self):
        self.fake.is_now("gone")
        ran = self.run_call()
        self.assertEqual(ran.returncode, 1)
        self.assertTrue(self.outcomes)
        for outcome in self.outcomes.values():
            self.assertRegex(outcome, "^skipped: nvidia-smi")

    def test_the_shell_script_says_what_it_lacks(self):
        script = ROOT / "scripts/gpu_check.sh"
        shutil.copy(script, self.root / "scripts")
        os.remove(self.root / "bin/cuda_kernels_test")
        for words, told in ((["--out", self.out], "no bin/cuda_kernels_test"),
                            (["--after"], "--after wants a value"), (["--what"], "--what"),
                            (["a.tar.xz", "b.tar.xz"], "two bundles")):
            ran = subprocess.run(["bash", self.root / "scripts/gpu_check.sh", *words],
                                 cwd=self.out, env=self.fake.environment(), text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                                 check=False)
            self.assertEqual(ran.returncode, 2)
            self.assertIn(told, ran.stdout)
        for wrong in (["--after", "/nowhere"], ["--changed", "nobody"]):
            ran = subprocess.run(self.command(*wrong), stderr=subprocess.PIPE, text=True,
                                 timeout=60, check=False)
            self.assertEqual(ran.returncode, 2, ran.stderr)


if __name__ == "__main__":
    unittest.main()
