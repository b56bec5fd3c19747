"""What is run on a GPU, in two calls: what is cheap and decides comes first. Each group of steps
has a share of the call's seconds, and each step has a limit of its own."""
import dataclasses
import functools
import importlib.util
import json
import math
import os
import pathlib
import shutil
import sys

import cases
import readers
from cases import LAYERS, PRODUCTS, ROWS
from runner import PASSED, Step

HERE = pathlib.Path(__file__).parent
SHARDS = 6  # Of the kernel tests: a fault ends one process, and the tests of one shard.
# Seconds of each group. With the summary's 15 s a call ends by its time.
FIRST = {"foundations": 15, "ceilings": 15, "memory checker": 25, "tests": 45, "curves": 20,
         "layers": 35, "rows": 85, "products": 40, "PyTorch": 70, "kernels": 35}
SECOND = {"foundations": 10, "again": 45, "layers": 35, "rows": 45, "race checker": 25,
          "service": 25}
SECONDS = {1: 400, 2: 190}
WORTH_BEGINNING = 20  # Seconds: what is dropped first needs so many.
LLAMA_3_2_1B = {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192,
                "vocab": 128256, "tied": True}
SMALL_KERNELS = "*Norm*:*Swi*:*Entropy*:*Attention*"  # At shapes that a race checker can bear.


class Programs:
    """The steps, by the programs of an unpacked bundle. `before`: the results of an earlier call,
    `changed`: the models that have changed since."""

    def __init__(self, runner, root, scratch, before=None, changed=()):
        self.runner, self.root, self.changed = runner, root, changed
        self.before = {step["name"]: step for step in (before or {}).get("steps", [])}
        self.scratch = pathlib.Path(scratch)
        self.bin, self.bench = root / "bin", root / "bench"
        name = runner.results["machine"].get("name", "")
        self.gpu = "h100" if "H100" in name else "h200"  # Whose rates predictions take.
        self.curves = cases.golden_curves()
        self.sanitizer = shutil.which("compute-sanitizer") or \
            "/usr/local/cuda/bin/compute-sanitizer"

    # What must be right before anything else is worth a second.

    def foundations(self):
        programs = [*sorted(self.bin.iterdir()), *sorted(self.bench.iterdir()),
                    *sorted((self.root / "lib").glob("libtrainyard_*.so"))]
        found = self.runner.run(Step("libraries", ["ldd", *programs], 15, readers.libraries,
                                     reports_failures=True))
        if "missing" in found:
            self.runner.dead = self.runner.dead or found["outcome"].removeprefix("failed: ")
        self.runner.together([
            Step("versions", [self.bench / "gpu_libraries"], 15, readers.versions),
            Step("cuDNN's device", [self.bench / "cudnn_device"], 15, readers.one_line("cudnn "))])

    def ceilings(self):
        self.python("ceilings by PyTorch", "torch_ceilings.py", [], 15, readers.ceilings)

    def python(self, name, script, words, limit, read):
        if importlib.util.find_spec("torch") is None:
            return self.runner.leave_out(name, "this Python has no torch")
        # What has been printed is read, even if the limit ended the script.
        return self.runner.run(Step(name, [sys.executable, HERE / script, *words], limit, read,
                                    reports_failures=True))

    def under(self, tool, name, command, limit, read=readers.memcheck, environment=None):
        words = [self.sanitizer, "--tool", tool, "--error-exitcode", 9, *command]
        return Step(name, words, limit, read, environment or {}, reports_failures=True)

    # Steps.

    def train(self, case, *options):
        return [self.bench / "train_step", "--device", "cuda", "--without-rates", "--steps",
                case.steps, *case.options(), *options]

    def tiny(self, case):
        """The command that a memory checker can bear in place of a training step of `case`."""
        few = dict(micro=1, sequence=256, layers=1, steps=1)
        return self.train(dataclasses.replace(case, **few), "--eager")

    def tiny_memcheck(self):
        return self.under("memcheck", "memcheck of a tiny step", self.train(cases.TINY, "--eager"),
                          25)

    def tests(self):
        shards = []
        for index in range(SHARDS):
            environment = {"GTEST_TOTAL_SHARDS": str(SHARDS), "GTEST_SHARD_INDEX": str(index)}
            command = [self.bin / "cuda_kernels_test", "--gtest_brief=1"]
            shards.append(Step(f"kernels {index + 1} of {SHARDS}", command, 45, readers.tests,
                               environment, reports_failures=True, checked=command))
        command = [self.bin / "cuda_training_test", "--gtest_brief=1"]
        return [*shards, Step("training", command, 45, readers.tests, reports_failures=True)]

    def curve_steps(self):
        """Losses and gradient norms beside the CPU's: each head dim and order, with graphs."""
        steps = []
        for case, golden in self.curves.items():
            for run in (case, case.any_order()):
                steps.append(Step(f"curve of {run}", self.train(run), 20,
                                  readers.step_time(golden), checked=self.tiny(run)))
        case, golden = next(iter(self.curves.items()))
        steps.append(Step(f"curve of {case}, without graphs", self.train(case, "--eager"), 20,
                          readers.step_time(golden), checked=self.tiny(case)))
        return steps

    def layer(self, case):
        """Every op of a layer at its real shapes, in the device's memory, against the CPU."""
        threads = -(-(os.cpu_count() or 1) // len(LAYERS))  # Rounded up: small layers end early.
        command = [self.bench / "lockstep", "--gpu", self.gpu, "--threads", threads,
                   *case.options()]
        read = functools.partial(readers.lockstep, our_attention=case.packed)
        return Step(f"layer of {case}", command, 35, read, reports_failures=True,
                    checked=[*command, "--timing", 0])

    def row(self, case):
        return Step(f"train {case}", self.train(case), 25, readers.step_time(
            untrusted=lambda: self.untrusted(case),
            predicted=lambda: self.found(f"predict {case}").get("predicted"),
            ceiling=lambda: self.found("ceilings by PyTorch").get(
                "bf16_flops" if case.precision == "BF16" else "fp8_flops")),
            checked=self.tiny(case))

    def predict(self, case):
        return Step(f"predict {case}", [self.bench / "predict_step", "--gpu", self.gpu,
                                        *case.options()], 10, readers.prediction)

    def products(self, case):
        """What cuBLASLt's other algorithms would take for the products of a step."""
        return Step(f"products of {case}", [self.bench / "matmul_search", *case.options()], 20,
                    readers.products)

    def service(self):
        command = [sys.executable, HERE / "through_service.py", self.bin, self.scratch / "service"]
        return Step("through the service", command, 25,
                    readers.one_line("through the service: "))

    def steps(self):
        """Those of the first call that the second repeats if they have failed, by name."""
        every = [self.tiny_memcheck(), *self.tests(), *self.curve_steps(),
                 *map(self.layer, LAYERS), *map(self.products, PRODUCTS), self.service()]
        return {step.name: step for step in every}

    # Which figures count.

    def found(self, name):
        """What this call has found in a step so far."""
        steps = self.runner.results["steps"]
        return next((step for step in steps if step["name"] == name), {})

    def has_passed(self, gate):
        """In this call, or in the earlier one. The gates of a model that has changed since are
        steps of this call (second())."""
        found = self.found(gate) or self.before.get(gate, {})
        return found.get("outcome") == PASSED

    def untrusted(self, case):
        """Why the speed of a row does not count: a gate of its own model has not passed. What
        another model misses is no reason."""
        layers = [*LAYERS, *cases.MORE_LAYERS]
        gates = [f"layer of {layer}" for layer in layers
                 if layer.model == case.model and layer.precision in ("BF16", case.precision)]
        # The ops of a recipe are those of any model's layer.
        gates += [f"layer of {layer}" for layer in layers
                  if layer.precision == case.precision != "BF16" and layer.model != case.model]
        gates += [f"curve of {dataclasses.replace(curve, deterministic=case.deterministic)}"
                  for curve in self.curves if curve.model == case.model]
        lacking = next((gate for gate in gates if not self.has_passed(gate)), "")
        return f"no speed, because '{lacking}' has not passed" if lacking else ""

    # Groups.

    def fitting(self, found):
        """The cases that fit the device. The others are open. Where the memory is not known, all
        are tried."""
        try:
            gib = float(self.runner.results["machine"]["memory.total"]) / 1024
        except (KeyError, ValueError):
            gib = math.inf
        for case in found:
            if case.gib > gib:
                self.runner.leave_out(f"train {case}", f"needs {case.gib} GiB, the device has "
                                                       f"{gib:.0f}")
        return [case for case in found if case.gib <= gib]

    def rows(self, found):
        """Alone, one after the other, beside what was predicted."""
        fitting = self.fitting(found)
        self.runner.together([self.predict(case) for case in fitting])
        for case in fitting:
            self.runner.run(self.row(case))

    def beside_pytorch(self, case):
        """The same model, batch and precision in PyTorch, compiled, with its best attention."""
        run = {"device": "cuda", "compile": True, "precision": "BF16", "weights": "BF16",
               "threads": 4, "steps": 12, "micro": case.micro, "sequence": case.sequence,
               "model": LLAMA_3_2_1B}
        self.python(f"PyTorch, compiled, {case}", "torch_llama.py", [json.dumps(run)], 80,
                    readers.pytorch(case.tokens()))

    def slowest_kernels(self, case):
        """Of one layer, by Nsight Compute: time, and how much of the device's throughput."""
        name = f"slowest kernels of a layer of {case}"
        profiler = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
        if not pathlib.Path(profiler).exists():
            return self.runner.leave_out(name, "no ncu on this machine")
        layer = dataclasses.replace(case, layers=1, steps=1)
        return self.runner.run(Step(name, [
            profiler, "--csv", "--clock-control", "none", "--profile-from-start", "off",
            "--print-units", "base", "--metrics", ",".join(readers.NCU_METRICS), "--launch-count",
            200, *self.train(layer, "--eager")], 40, readers.slowest_kernels,
            reports_failures=True))

    def race_checker(self, limit):
        return self.under("racecheck", "race checker", [
            self.bin / "cuda_kernels_test", "--gtest_brief=1", f"--gtest_filter={SMALL_KERNELS}"],
            limit)

    def later(self):
        """Dropped first: what time is left decides."""
        tiny = self.train(cases.TINY, "--eager")
        for step in (self.service(), self.race_checker(30),
                     self.under("initcheck", "initcheck of a tiny step", tiny, 30),
                     *map(self.layer, cases.MORE_LAYERS),
                     *map(self.row, self.fitting(cases.MORE_ROWS))):
            if self.runner.left() < WORTH_BEGINNING * self.runner.scale:
                self.runner.leave_out(step.name, "no time left")
            else:
                self.runner.run(step)

    def failed_rows_checked(self, found):
        """Rows that have failed in this call, under the memory checker: a tiny step in place of
        each. A row that only lacks its gate has nothing to find. What time is left decides."""
        for case in found:
            step = self.row(case)
            outcome = self.found(step.name).get("outcome", "")
            if not outcome.startswith("failed") or "no speed, because" in outcome:
                continue
            name = f"{step.name}, under memcheck"
            if self.runner.left() < WORTH_BEGINNING * self.runner.scale:
                self.runner.leave_out(name, "no time left")
            else:
                self.runner.run(self.under("memcheck", name, step.checked, 25))

    def again(self):
        """What failed before: first as it was, then under the memory checker if it fails again."""
        steps = self.steps()
        failed = [name for name, step in self.before.items()
                  if step["outcome"].startswith("failed") and name in steps]
        for name in failed:
            step = steps[name]
            if self.runner.run(step)["outcome"] == PASSED or not step.checked:
                continue
            named = self.before[name].get("failed_tests", [])
            only = [f"--gtest_filter={':'.join(named)}"] if named else []
            environment = {} if named else step.environment
            self.runner.run(self.under("memcheck", f"{name}, under memcheck",
                                       [*step.checked, *only], 25, environment=environment))


def first(p):
    share = p.runner.share
    with share(FIRST["foundations"]):
        p.foundations()
    with share(FIRST["ceilings"]):
        p.ceilings()
    with share(FIRST["memory checker"]):
        p.runner.run(p.tiny_memcheck())
    with share(FIRST["tests"]):
        p.runner.together(p.tests())
    with share(FIRST["curves"]):
        p.runner.together(p.curve_steps())
    with share(FIRST["layers"]):
        p.runner.together([p.layer(case) for case in LAYERS])
    with share(FIRST["rows"]):
        p.rows(ROWS)
    with share(FIRST["products"]):
        for case in PRODUCTS:
            p.runner.run(p.products(case))
    with share(FIRST["PyTorch"]):
        p.beside_pytorch(cases.ROW_BESIDE_PYTORCH)
    with share(FIRST["kernels"]):
        p.slowest_kernels(ROWS[2])
    p.later()


def second(p):
    """After a mend: failed steps again, changed rows beside one that has not changed."""
    share = p.runner.share
    with share(SECOND["foundations"]):
        p.foundations()
    with share(SECOND["again"]):
        p.again()
    done = {step["name"] for step in p.runner.results["steps"]}
    with share(SECOND["layers"]):
        # A recipe's ops are those of any model's layer.
        narrow = {case.precision for case in ROWS if case.model in p.changed} - {"BF16"}
        gates = [p.layer(case) for case in LAYERS
                 if case.model in p.changed or case.precision in narrow]
        gates += [step for step in p.curve_steps()
                  if any(step.name.startswith(f"curve of {model}") for model in p.changed)]
        p.runner.together([step for step in gates if step.name not in done])
    with share(SECOND["rows"]):
        again = [case for case in ROWS if case.model in p.changed or
                 p.before.get(f"train {case}", {}).get("outcome", "").startswith("failed")]
        others = [case for case in ROWS if case not in again]
        p.rows([*again, *others[:1]])
        p.failed_rows_checked(again)
    with share(SECOND["race checker"]):
        p.runner.run(p.race_checker(25))
    with share(SECOND["service"]):
        if "through the service" not in done:
            p.runner.run(p.service())


CALLS = {1: first, 2: second}
MODELS = sorted({case.model for case in [*ROWS, *LAYERS]})
