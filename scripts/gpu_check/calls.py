"""What is run on a GPU, in calls of at most ten minutes, most valuable first. Each step has a limit of its own."""
import json
import math
import pathlib
import shutil
import sys

import readers

SHARDS = 6  # Of the kernel tests: a fault ends one process, and the tests of one shard.
CASES = [  # Name, sequences of a micro-batch, tokens of a sequence, micro-batches of a step, GiB that it needs.
    ("gpt2-124m", 16, 1024, 1, 16),
    ("gpt2-124m", 64, 1024, 1, 40),
    ("llama3.2-1b", 4, 4096, 1, 60),
    ("llama2-7b", 1, 4096, 8, 135),
]
ON_CURVE = "124m against the CPU"  # Without it no run's speed counts.
CURVE_STEPS = 200
MORE_CASES = [("gpt2-1558m", 16, 1024, 1, 80)]

CURVE = """version: 1
job:
  name: byte
  model: {{architecture: {{family: llama, layers: 6, hidden: 256, ffn: 768, heads: 4, kv_heads: 2, vocab: 256, max_seq: 256}}}}
  precision: BF16
  batch: {{global: 16, micro: 16, sequence: 256}}
  data: {{synthetic: {{}}}}
  optimizer: {{adamw: {{learning_rate: 1e-3}}, clip_norm: 1.0}}
  steps: {steps}
  devices: 1
  seed: 1
  checkpoint: {{directory: {directory}}}
"""


class Programs:
    def __init__(self, runner, root, scratch):
        self.runner = runner
        self.scratch = pathlib.Path(scratch)
        self.bin, self.bench = root / "bin", root / "bench"
        self.golden = json.loads((pathlib.Path(__file__).parent / "gpt2_124m_curve.json").read_text())["curve"]
        self.sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"

    def memory_gib(self):
        """Of the device; where that is not known, as much as any run wants."""
        try:
            return float(self.runner.results["machine"]["memory.total"]) / 1024
        except (KeyError, ValueError):
            return math.inf

    def train_step(self, name, case, limit, *options, golden=None):
        model, micro, sequence, accumulate, gib = case
        if self.memory_gib() < gib:
            return self.runner.leave_out(name, f"needs {gib} GiB, the device has {self.memory_gib():.0f}")
        untrusted = "" if golden or self.runner.passed(ON_CURVE) else f"no speed, because '{ON_CURVE}' has not passed"
        return self.runner.run(name, [self.bench / "train_step", "--device", "cuda", "--case", model, "--micro", micro,
                                      "--sequence", sequence, "--accumulate", accumulate, *options], limit, readers.step_time(golden, untrusted))

    def against_the_cpu(self, name, *options):
        self.train_step(name, ("gpt2-124m", 1, 1024, 1, 8), 60, "--steps", 9, *options, golden=self.golden)

    def tests(self, name, program, limit, *options, environment=None):
        return self.runner.run(name, [self.bin / program, "--gtest_brief=1", *options], limit, readers.tests, environment)

    def benchmarks(self, name, pattern, limit):
        return self.runner.run(name, [self.bench / "kernels_bench", "--device=cuda", "--benchmark_format=json",
                                      "--benchmark_min_time=0.05", f"--benchmark_filter={pattern}"], limit, readers.benchmarks)

    def shards(self):
        """Of the kernel tests; one that fails runs again under the memory checker, which says where."""
        for index in range(SHARDS):
            shard = {"GTEST_TOTAL_SHARDS": str(SHARDS), "GTEST_SHARD_INDEX": str(index)}
            name = f"kernels {index + 1} of {SHARDS}"
            if self.tests(name, "cuda_kernels_test", 60, environment=shard)["outcome"].startswith("failed"):
                self.runner.run(f"{name} under memcheck", [self.sanitizer, "--tool", "memcheck", "--error-exitcode", 9,
                                                           self.bin / "cuda_kernels_test", "--gtest_brief=1"],
                                120, environment=shard)

    def curves(self):
        """A small model through the trainer, on both devices."""
        found = {}
        for device in ("cuda", "cpu"):
            config = self.scratch / f"curve-{device}.yaml"
            config.write_text(CURVE.format(steps=CURVE_STEPS, directory=self.scratch / f"curve-{device}"))
            step = self.runner.run(f"curve {device}", [self.bin / "trainyard-trainer", config, "--device", device], 200,
                                   readers.trainer_losses(CURVE_STEPS))
            found[device] = step.get("losses", [])
        if found["cuda"] and found["cpu"]:
            difference = max(abs(a - b) for a, b in zip(found["cuda"], found["cpu"]))
            self.runner.results["curve"] = {"largest_difference": difference, "within_noise": difference < 0.05}
            self.runner.save()


def first(programs):
    """Nine minutes: is it right, and how fast are whole steps?"""
    # Right at a real size, before any speed.
    programs.against_the_cpu(ON_CURVE)
    programs.against_the_cpu(f"{ON_CURVE}, without graphs", "--eager")
    for case in CASES:
        model, micro, sequence, accumulate, _ = case
        programs.train_step(f"train {model}, {micro} x {sequence}, {accumulate} micro-batches", case, 60, "--steps", 20)
    programs.benchmarks("products and attention", "MatMul|Attention|GroupedMatMul", 80)
    programs.benchmarks("other kernels", "-MatMul|Attention|GroupedMatMul", 60)
    programs.runner.run("through the service", [sys.executable, pathlib.Path(__file__).parent / "through_service.py", programs.bin,
                                                programs.scratch / "service"], 60, readers.one_line("through the service: "))
    programs.shards()
    programs.tests("training", "cuda_training_test", 60)


def second(programs):
    """What the first left out for want of time, and larger models."""
    programs.against_the_cpu(ON_CURVE)
    for case in MORE_CASES:
        model, micro, sequence, accumulate, _ = case
        programs.train_step(f"train {model}, {micro} x {sequence}, {accumulate} micro-batches", case, 90, "--steps", 20)
    programs.shards()
    programs.tests("training", "cuda_training_test", 90)
    programs.curves()


def third(programs):
    """Faults, and the checkers."""
    programs.tests("fault", "cuda_fault_test", 60)
    for tool in ("memcheck", "racecheck"):
        programs.runner.run(tool, [programs.sanitizer, "--tool", tool, "--error-exitcode", 9, programs.bin / "cuda_kernels_test",
                                   "--gtest_brief=1", "--gtest_filter=*Norm*:*Swi*:*Entropy*:*Attention*"], 150, readers.tests)


CALLS = {1: first, 2: second, 3: third}
