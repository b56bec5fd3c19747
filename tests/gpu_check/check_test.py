"""Proves a whole check on a device that is none: every step of every call runs or is named, whatever the programs do."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/gpu_check"), str(ROOT / "tests/gpu_check")]

from fake_device import FakeDevice  # noqa: E402

CURVES = json.loads((ROOT / "scripts/gpu_check/golden_curves.json").read_text())["curves"]
GOLDEN = {golden["case"]["model"]: golden["curve"] for golden in CURVES}
STEP = f"""
import sys
curve = {GOLDEN!r}.get(sys.argv[sys.argv.index("--case") + 1], [(5.5, 1.0)] * 20)
for step, (loss, norm) in enumerate(curve, 1):
    print(f"step {{step}}: loss {{loss:.6f}}, gradient norm {{norm:.6f}}")
print("x bf16, 2 threads: step median 36.50 ms of 20 (36.10 to 38.00), 448876 tokens/s")
print("matrix rate 788000.1 GFLOP/s, memory rate 4210.5 GB/s, model 13100.55 GFLOP a step: MFU 45.5%")
print("memory: 9.0 GiB")
"""
PREDICTION = """print('attention       12   5.000   20.0%')
print('predicted products: 15.00 ms')
print('predicted step: 36.00 ms, 455111 tokens/s, MFU 40.0% of 989 TFLOP/s')
print('memory: 9.0 GiB')
"""
LOCKSTEP = """print('op       apart         us  predicted  shapes')
print('attention    0.1000     60.86       50.11  [256, 256] to [256, 256]')
print('lockstep: 57 ops agree')
"""
PRODUCTS = "print('product bf16 to bf16 M 8 N 8 K 8: first 12.00 us, best 10.00 us, number 2 of 16')"
TORCH = "print('{\"version\": \"2.15\", \"seconds\": [9, 1, 1, 1, 1, 1, 1], \"losses\": [5.5, 5.25]}')"
NCU = """print('==PROF== Connected')
print('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
print('"0","gemm(int)","gpu__time_duration.sum","ns","1,500"')
print('"0","gemm(int)","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","81.5"')
"""
TESTS = """print("[  PASSED  ] 7 tests.")"""
BENCH = """print('{\\n"benchmarks": [{"name": "Add", "real_time": 1.0}]}')"""
SERVICE = "import sys\nprint('through the service: fine')\n"
PROGRAMS = {"bin/cuda_kernels_test": TESTS, "bin/cuda_training_test": TESTS, "bin/cuda_fault_test": TESTS,
            "bin/trainyard-trainer": "import sys\nprint('trainyard 0.1.0' if '--version' in sys.argv else 'step loss 5.25\\n' * 200)",
            "bench/train_step": STEP, "bench/kernels_bench": BENCH, "bench/predict_step": PREDICTION, "bench/lockstep": LOCKSTEP,
            "bench/matmul_search": PRODUCTS, "bench/cudnn_device": """print('cudnn 91900 device {}')"""}


OPEN = {name: "open: needs 176 GiB, the device has 140" for name in (
    "lockstep llama3-8b of 1 layers, 1 x 8192, 1 micro-batches", "train llama3-8b, 1 x 8192, 1 micro-batches",
    "train llama3-8b, 1 x 8192, 1 micro-batches, any order")}


class Check(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name) / "root"
        self.out = pathlib.Path(temporary.name) / "out"
        self.out.mkdir()
        self.fake = FakeDevice(pathlib.Path(temporary.name) / "fake")
        self.fake.program("compute-sanitizer", TESTS)
        self.fake.program("ncu", NCU)
        at_root = FakeDevice(self.root)
        for name, python in PROGRAMS.items():
            at_root.program(name, python)
        shutil.copytree(ROOT / "scripts/gpu_check", self.root / "scripts/gpu_check")
        (self.root / "scripts/gpu_check/through_service.py").write_text(SERVICE)
        (self.root / "scripts/gpu_check/torch_llama.py").write_text(TORCH)
        self.fake.program("torch.py", "")  # All that is asked is whether there is one.

    def becomes(self, name, python):
        FakeDevice(self.root).program(name, python)

    def command(self, call=1, minutes=1):
        return [sys.executable, self.root / "scripts/gpu_check/main.py", "--root", self.root, "--out", self.out,
                "--minutes", str(minutes), "--call", str(call)]

    def run_call(self, call=1, minutes=1):
        ran = subprocess.run(self.command(call, minutes), env=self.fake.environment(), stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        self.results = json.loads((self.out / "results.json").read_text())
        self.outcomes = {step["name"]: step["outcome"] for step in self.results["steps"]}
        self.assertEqual(len(self.outcomes), len(self.results["steps"]), "a name stands for one step")
        self.assertLessEqual(len(list(self.out.iterdir())), 8)
        return ran

    def test_every_call_passes_where_all_is_well(self):
        for call in (1, 2, 3):
            with self.subTest(call):
                for file in self.out.iterdir():
                    file.unlink()
                ran = self.run_call(call)
                self.assertEqual(ran.returncode, 0, ran.stdout)
                self.assertEqual({name: outcome for name, outcome in self.outcomes.items() if outcome != "passed"},
                                 OPEN if call == 2 else {}, ran.stdout)
                self.assertEqual(self.results["machine"]["name"], "Fake H200")
                self.assertEqual(self.results["machine"]["trainyard"], "trainyard 0.1.0")

    def test_speed_away_from_the_cpus_curve_is_not_reported(self):
        self.becomes("bench/train_step", STEP.replace("{loss:.6f}", "{loss + 0.1:.6f}"))
        ran = self.run_call()
        self.assertEqual(ran.returncode, 1)
        for case in ("gpt2-124m, 1 x 1024", "llama2-7b of 1 layers, 1 x 256"):
            self.assertIn("a CPU has", self.outcomes[f"{case}, 1 micro-batches against the CPU"])
        for step in self.results["steps"]:
            self.assertNotIn("tokens_per_second", step, step["name"])
        self.assertIn("no speed", self.outcomes["train gpt2-124m, 16 x 1024, 1 micro-batches"])

    def test_each_curve_must_be_followed_before_any_speed(self):
        self.becomes("bench/train_step", STEP.replace("for step,", "if 'llama2-7b' in sys.argv: curve[19] = (11, 11)\nfor step,"))
        self.run_call()
        self.assertEqual(self.outcomes["gpt2-124m, 1 x 1024, 1 micro-batches against the CPU"], "passed")
        self.assertIn("no speed, because 'llama2-7b of 1 layers, 1 x 256, 1 micro-batches against the CPU' has not passed",
                      self.outcomes["train gpt2-124m, 16 x 1024, 1 micro-batches"])

    def test_a_model_whose_ops_are_wrong_has_no_speed(self):
        self.becomes("bench/lockstep", f"""import sys
if "llama3.2-1b" in sys.argv:
    print("attention    9.1000     60.86       50.11  [256, 256] to [256, 256]")
    print("apart: attention of block 1: mixed bf16[2, 2] by 0.5")
    sys.exit("error: 1 of 57 ops are apart")
{LOCKSTEP}""")
        self.run_call()
        steps = {step["name"]: step for step in self.results["steps"]}
        self.assertEqual(steps["lockstep llama3.2-1b of 1 layers, 2 x 4096, 1 micro-batches"]["outcome"],
                         "failed: 1 ops, first attention of block 1: mixed bf16[2, 2] by 0.5")
        wrong = steps["train llama3.2-1b, 4 x 4096, 1 micro-batches"]
        self.assertIn("no speed, because 'lockstep llama3.2-1b of 1 layers", wrong["outcome"])
        self.assertNotIn("tokens_per_second", wrong)
        self.assertIn("tokens_per_second", steps["train llama2-7b, 1 x 4096, 8 micro-batches"])

    def test_every_speed_has_a_gate(self):
        """Also one whose gate is in no list."""
        self.becomes("bench/lockstep", "import sys; sys.exit('error: none today')")
        for call in (1, 2):
            self.run_call(call)
            rows = [step for step in self.results["steps"] if step["name"].startswith("train ")]
            self.assertGreater(len(rows), 4)
            for row in rows:
                self.assertRegex(row["outcome"], "no speed, because 'lockstep |^open: needs")
                self.assertNotIn("tokens_per_second", row)

    def test_predictions_are_of_the_device_that_is_there(self):
        smi = (self.fake.directory / "nvidia-smi").read_text()
        (self.fake.directory / "nvidia-smi").write_text(smi.replace("Fake H200", "NVIDIA H100 80GB HBM3"))
        self.run_call()
        asked = [step["command"] for step in self.results["steps"] if step["name"].startswith(("predict ", "lockstep "))]
        self.assertGreater(len(asked), 8)
        for command in asked:
            self.assertIn("--gpu h100", command)

    def test_what_an_earlier_check_found_is_kept(self):
        self.run_call()
        first = (self.out / "results.json").read_bytes(), (self.out / "check.log").read_bytes()
        self.fake.is_now("gone")
        self.run_call()
        self.assertEqual(((self.out / "results.1.json").read_bytes(), (self.out / "check.1.log").read_bytes()), first)
        self.assertNotEqual((self.out / "results.json").read_bytes(), first[0])

    def test_whoever_stops_watching_ends_nothing(self):
        ran = subprocess.run(["bash", "-c", '"$@" | head -1', "bash", *self.command()], env=self.fake.environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        self.assertEqual(ran.stderr, "")
        self.assertEqual({step["outcome"] for step in json.loads((self.out / "results.json").read_text())["steps"]}, {"passed"})

    def test_a_signal_ends_the_step_and_all_it_started_and_names_the_rest(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.becomes("bench/lockstep", f"""import pathlib, subprocess, time
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
pathlib.Path({str(self.out / "child")!r}).write_text(str(child.pid))
print("so far", flush=True)
time.sleep(1000)""")
            (self.out / "child").unlink(missing_ok=True)
            check = subprocess.Popen(self.command(), env=self.fake.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            end = time.monotonic() + 60
            while not (self.out / "child").exists() and time.monotonic() < end:
                time.sleep(0.02)
            child = int((self.out / "child").read_text() or 0)
            check.send_signal(number)
            self.assertEqual(check.communicate(timeout=60)[1], "")
            self.assertEqual(check.returncode, 1)
            self.assertFalse(pathlib.Path(f"/proc/{child}").exists())
            steps = {step["name"]: step["outcome"] for step in json.loads((self.out / "results.json").read_text())["steps"]}
            self.assertEqual(steps["lockstep gpt2-124m of 1 layers, 2 x 1024, 1 micro-batches"], f"failed: interrupted by {number.name}")
            self.assertEqual(steps["training"], f"skipped: interrupted by {number.name}")
            self.assertIn("so far", (self.out / "check.log").read_text())

    def test_each_row_is_measured_both_ways_beside_its_prediction(self):
        self.run_call()
        rows = [step for step in self.results["steps"] if step["name"].startswith("train ")]
        self.assertEqual(len(rows), 8)
        for row in rows:
            self.assertEqual(row["predicted_ms"], 36)
            self.assertIn("--deterministic " + ("false" if "any order" in row["name"] else "true"), row["command"])

    def test_a_device_whose_memory_is_not_known_is_tried(self):
        smi = (self.fake.directory / "nvidia-smi").read_text().replace("143771", "[N/A]")
        (self.fake.directory / "nvidia-smi").write_text(smi)
        self.assertEqual(self.run_call(2).returncode, 0)
        self.assertEqual(set(self.outcomes.values()), {"passed"})

    def test_a_curve_that_ends_early_is_a_failure(self):
        self.becomes("bin/trainyard-trainer", "print('step 1 loss 5.25')")
        self.assertEqual(self.run_call(2).returncode, 1)
        self.assertIn("1 losses, wanted 200", self.outcomes["curve cuda"])

    def test_a_program_that_dies_or_prints_rubbish_fails_alone(self):
        self.becomes("bench/kernels_bench", "print('{\\n\"benchmarks\": [{\"na')")
        self.becomes("bin/cuda_training_test", "import os; os.kill(os.getpid(), 6)")
        self.becomes("bench/matmul_search", "print('product')")
        ran = self.run_call()
        self.assertEqual(ran.returncode, 1)
        wrong = {name: outcome for name, outcome in self.outcomes.items() if outcome != "passed"}
        self.assertEqual(wrong.pop("training"), "failed: SIGABRT")
        self.assertEqual(set(wrong), {name for name in self.outcomes if name.startswith("products of")}, ran.stdout)
        self.assertEqual(set(wrong.values()), {"failed: its output cannot be read: no product"})
        self.run_call(3)
        wrong = {name for name, outcome in self.outcomes.items() if outcome != "passed"}
        self.assertEqual(wrong, {"products and attention", "other kernels"})

    def test_a_shard_that_fails_runs_again_under_the_memory_checker(self):
        self.becomes("bin/cuda_kernels_test", f"""import os, sys
if os.environ.get("GTEST_SHARD_INDEX") == "2":
    sys.exit("[  FAILED  ] A.b")
{TESTS}""")
        self.run_call()
        again = [name for name in self.outcomes if "memcheck" in name]
        self.assertEqual(again, ["kernels 3 of 6 under memcheck"])

    def test_a_device_that_dies_ends_the_check_at_once_and_by_name(self):
        mood = self.fake.directory / "mood"
        self.becomes("bench/matmul_search", f"import pathlib, sys; pathlib.Path({str(mood)!r}).write_text('gone'); sys.exit(1)")
        ran = self.run_call()
        self.assertEqual(ran.returncode, 1)
        names = list(self.outcomes)
        died = names.index("products of gpt2-124m, 16 x 1024, 1 micro-batches")
        self.assertIn("the device died", self.outcomes[names[died]])
        for name in names[died + 1:]:
            self.assertIn("skipped: the device died in products of gpt2-124m", self.outcomes[name])
        self.assertIn("training", names[died + 1:])

    def test_without_a_device_all_is_named(self):
        self.fake.is_now("gone")
        ran = self.run_call()
        self.assertEqual(ran.returncode, 1)
        self.assertTrue(self.outcomes)
        for outcome in self.outcomes.values():
            self.assertRegex(outcome, "^skipped: nvidia-smi")

    def test_a_program_that_cannot_say_its_version_is_no_reason_to_stop(self):
        os.remove(self.root / "bin/trainyard-trainer")
        self.run_call()
        self.assertIn("No such file", self.results["machine"]["trainyard"])
        self.assertEqual(set(self.outcomes.values()), {"passed"})

    def test_what_the_device_has_no_memory_for_is_open_and_no_failure(self):
        smi = (self.fake.directory / "nvidia-smi").read_text().replace("143771", "81559")
        (self.fake.directory / "nvidia-smi").write_text(smi)
        ran = self.run_call()
        self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertRegex(self.outcomes["train llama2-7b, 1 x 4096, 8 micro-batches"], "^open: needs 135 GiB, the device has 80$")

    def test_the_shell_script_says_what_it_lacks(self):
        shutil.copy(ROOT / "scripts/gpu_check.sh", self.root / "scripts")
        os.remove(self.root / "bin/cuda_kernels_test")
        ran = subprocess.run(["bash", self.root / "scripts/gpu_check.sh", "--out", self.out], env=self.fake.environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        self.assertEqual(ran.returncode, 2)
        self.assertIn("no bin/cuda_kernels_test", ran.stdout)
        for wrong in (["--call"], ["--call", "4"], ["--call", "../x"], ["--what"], ["a.tar.gz", "b.tar.gz"]):
            ran = subprocess.run(["bash", self.root / "scripts/gpu_check.sh", *wrong], cwd=self.out, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
            self.assertEqual(ran.returncode, 2)
            self.assertIn("; wanted scripts/gpu_check.sh", ran.stdout)
        self.assertEqual(list(self.out.iterdir()), [])

    def test_minutes_are_a_number(self):
        for wrong in ("nan", "inf", "0", "-1", "x"):
            ran = subprocess.run(self.command(minutes=wrong), stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual(ran.returncode, 2, wrong)


if __name__ == "__main__":
    unittest.main()
