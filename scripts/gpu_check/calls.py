"""What is run on a GPU, in calls of at most ten minutes, most valuable first. Each step has a limit of its own."""
import dataclasses
import importlib.util
import json
import math
import pathlib
import shutil
import sys

import readers

SHARDS = 6  # Of the kernel tests: a fault ends one process, and the tests of one shard.


@dataclasses.dataclass(frozen=True)
class Case:
    """A training step: what bench/train_step and bench/predict_step are asked for."""
    model: str
    micro: int  # Sequences of a micro-batch.
    sequence: int  # Tokens of one.
    accumulate: int  # Micro-batches of a step.
    gib: int  # Of the device that it needs.
    layers: int = 0  # 0: all.
    deterministic: bool = True
    steps: int = 20  # That are timed.

    def __str__(self):
        layers = f" of {self.layers} layers" if self.layers else ""
        order = "" if self.deterministic else ", any order"
        return f"{self.model}{layers}, {self.micro} x {self.sequence}, {self.accumulate} micro-batches{order}"

    def options(self):
        layers = ["--layers", self.layers] if self.layers else []
        return ["--case", self.model, "--micro", self.micro, "--sequence", self.sequence, "--accumulate", self.accumulate,
                "--deterministic", "true" if self.deterministic else "false", *layers]

    def tokens(self):
        return self.micro * self.sequence * self.accumulate


ROWS = [
    Case("gpt2-124m", 16, 1024, 1, 16),
    Case("gpt2-124m", 64, 1024, 1, 40),
    Case("llama3.2-1b", 4, 4096, 1, 60),
    Case("llama2-7b", 1, 4096, 8, 135, steps=6),
]
ROW_BESIDE_PYTORCH = ROWS[2]
MORE_ROWS = [
    Case("gpt2-1558m", 16, 1024, 1, 72),
    Case("qwen3-30b-a3b", 4, 4096, 1, 125, layers=8),
]
# One layer has all shapes; of two sequences, since the CPU computes them, too.
GATES = [
    Case("gpt2-124m", 2, 1024, 1, 16, layers=1),
    Case("llama3.2-1b", 2, 4096, 1, 30, layers=1),
    Case("llama2-7b", 1, 4096, 1, 30, layers=1),
]
MORE_GATES = [
    Case("gpt2-1558m", 2, 1024, 1, 16, layers=1),
    Case("qwen3-30b-a3b", 1, 4096, 1, 60, layers=1),
]
ROW_BEYOND_MEMORY = Case("llama3-8b", 1, 8192, 1, 176)
GATE_BEYOND_MEMORY = dataclasses.replace(ROW_BEYOND_MEMORY, layers=1)  # Only where the row itself can run.
CURVE_STEPS = 200
LLAMA_3_2_1B = {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "vocab": 128256, "tied": True}

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


def on_curve(case):
    return f"{case} against the CPU"


class Programs:
    def __init__(self, runner, root, scratch):
        self.runner = runner
        self.scratch = pathlib.Path(scratch)
        self.gate_of = {}  # By model: the step that compares its ops with the CPU's.
        self.bin, self.bench = root / "bin", root / "bench"
        self.gpu = "h100" if "H100" in runner.results["machine"].get("name", "") else "h200"  # Whose rates predictions take.
        self.curves_of = {}  # By case: what the CPU had. No run's speed counts unless each has been followed.
        for golden in json.loads((pathlib.Path(__file__).parent / "golden_curves.json").read_text())["curves"]:
            self.curves_of[Case(**golden["case"])] = golden["curve"]
        self.sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"

    def memory_gib(self):
        """Of the device; where that is not known, as much as any run wants."""
        try:
            return float(self.runner.results["machine"]["memory.total"]) / 1024
        except (KeyError, ValueError):
            return math.inf

    def lacks_memory(self, name, case):
        if self.memory_gib() >= case.gib:
            return False
        self.runner.leave_out(name, f"needs {case.gib} GiB, the device has {self.memory_gib():.0f}")
        return True

    def train_step(self, name, case, limit, *options, golden=None, predicted=None):
        if self.lacks_memory(name, case):
            return
        wanted = [on_curve(dataclasses.replace(followed, deterministic=case.deterministic)) for followed in self.curves_of]
        wanted.append(self.gate_of.get(case.model, f"a lockstep of {case.model}"))
        lacking = "" if golden else next((step for step in wanted if not self.runner.passed(step)), "")
        untrusted = f"no speed, because '{lacking}' has not passed" if lacking else ""
        self.runner.run(name, [self.bench / "train_step", "--device", "cuda", "--steps", case.steps, *case.options(), *options],
                        limit, readers.step_time(golden, untrusted, predicted=predicted))

    def against_the_cpu(self, eager=False):
        """Before any speed: losses and gradient norms of real models, of each head dim and order, with graphs."""
        for case, golden in self.curves_of.items():
            for deterministic in (True, False):
                run = dataclasses.replace(case, deterministic=deterministic)
                self.train_step(on_curve(run), run, 60, golden=golden)
        if eager:
            case, golden = next(iter(self.curves_of.items()))
            self.train_step(f"{on_curve(case)}, without graphs", case, 60, "--eager", golden=golden)

    def predict(self, case):
        step = self.runner.run(f"predict {case}", [self.bench / "predict_step", "--gpu", self.gpu, *case.options()], 30, readers.prediction)
        return step.get("predicted")

    def rows(self, cases, limit):
        """Each in one order and in any, beside what was predicted."""
        for deterministic in (True, False):
            for case in cases:
                case = dataclasses.replace(case, deterministic=deterministic)
                self.train_step(f"train {case}", case, limit, predicted=self.predict(case))

    def gates(self, cases):
        """Every op of a layer at its real shapes, in the device's memory, against the CPU."""
        for case in cases:
            name = f"lockstep {case}"
            if self.lacks_memory(name, case):
                continue
            self.gate_of[case.model] = name
            self.runner.run(name, [self.bench / "lockstep", "--gpu", self.gpu, *case.options()], 120, readers.lockstep,
                            reports_failures=True)

    def search(self, cases):
        """What cuBLASLt's other algorithms would take for the products of a step."""
        for case in cases:
            self.runner.run(f"products of {case}", [self.bench / "matmul_search", *case.options()], 30, readers.products)

    def beside_pytorch(self, case):
        """The same model, batch and semantics in PyTorch, compiled, with the fastest attention that it has."""
        name = f"PyTorch, compiled, {case}"
        if importlib.util.find_spec("torch") is None:
            self.runner.leave_out(name, "this Python has no torch")
        elif not self.lacks_memory(name, case):
            run = {"device": "cuda", "compile": True, "precision": "BF16", "threads": 4, "steps": 12, "micro": case.micro,
                   "sequence": case.sequence, "model": LLAMA_3_2_1B}
            self.runner.run(name, [sys.executable, pathlib.Path(__file__).parent / "torch_llama.py", json.dumps(run)], 150,
                            readers.pytorch(case.tokens()))

    def slowest_kernels(self, case):
        """Of a layer, by Nsight Compute: time, and how much of the device's throughput."""
        name = f"slowest kernels of {case}"
        profiler = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
        if not pathlib.Path(profiler).exists():
            return self.runner.leave_out(name, "no ncu on this machine")
        return self.runner.run(name, [profiler, "--csv", "--clock-control", "none", "--profile-from-start", "off", "--print-units", "base", "--metrics", ",".join(readers.NCU_METRICS),
                                      "--launch-count", 400, self.bench / "lockstep", "--timing", 0, *case.options()],
                               120, readers.slowest_kernels)

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
    programs.runner.run("cuDNN's device", [programs.bench / "cudnn_device"], 20, readers.one_line("cudnn "))
    programs.against_the_cpu(eager=True)
    programs.gates(GATES)
    programs.rows(ROWS, 60)
    programs.search([ROWS[0], *ROWS[2:]])
    programs.runner.run("through the service", [sys.executable, pathlib.Path(__file__).parent / "through_service.py", programs.bin,
                                                programs.scratch / "service"], 60, readers.one_line("through the service: "))
    programs.shards()
    programs.tests("training", "cuda_training_test", 60)


def second(programs):
    """Larger models, PyTorch beside, and what the first left out for want of time."""
    programs.against_the_cpu()
    programs.gates([*MORE_GATES, GATES[1], GATE_BEYOND_MEMORY])
    programs.rows(MORE_ROWS, 90)
    programs.rows([ROW_BESIDE_PYTORCH], 60)
    programs.beside_pytorch(ROW_BESIDE_PYTORCH)
    programs.rows([ROW_BEYOND_MEMORY], 60)
    programs.slowest_kernels(GATES[1])
    programs.shards()
    programs.tests("training", "cuda_training_test", 90)
    programs.curves()


def third(programs):
    """Faults, the checkers, and kernels at sizes of no model."""
    programs.tests("fault", "cuda_fault_test", 60)
    for tool in ("memcheck", "racecheck"):
        programs.runner.run(tool, [programs.sanitizer, "--tool", tool, "--error-exitcode", 9, programs.bin / "cuda_kernels_test",
                                   "--gtest_brief=1", "--gtest_filter=*Norm*:*Swi*:*Entropy*:*Attention*"], 150, readers.tests)
    programs.benchmarks("products and attention", "MatMul|Attention|GroupedMatMul", 80)
    programs.benchmarks("other kernels", "-MatMul|Attention|GroupedMatMul", 60)


CALLS = {1: first, 2: second, 3: third}
