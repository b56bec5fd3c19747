#!/usr/bin/env python3
"""The steps of gpu_check.sh, most valuable first; standard library alone."""
import argparse
import datetime
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

JOB = """
name: byte
model: {{architecture: {{family: llama, layers: 6, hidden: 256, ffn: 768, heads: 8, kv_heads: 4, vocab: 256, max_seq: 256}}}}
precision: {precision}
batch: {{global: 16, micro: 16, sequence: 256}}
data: {{synthetic: {{}}}}
optimizer: {{adamw: {{learning_rate: 1e-3}}, clip_norm: 1.0}}
steps: {steps}
checkpoint: {{directory: {directory}, every_steps: {every}, keep: 4}}
devices: 1
seed: 1
"""


class Check:
    def __init__(self, options):
        self.root = pathlib.Path(options.root)
        self.out = pathlib.Path(options.out)
        self.deadline = time.monotonic() + 60 * options.minutes
        self.log = open(self.out / "check.log", "w")
        self.results = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                        "command": f"scripts/gpu_check.sh --minutes {options.minutes}", "machine": {}, "steps": []}

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, name, command, limit, parse=None, environment=None):
        """Runs one step, at most `limit` seconds; returns its output, or None where it did not end well."""
        limit = min(limit, self.left())
        step = {"name": name, "command": " ".join(str(c).replace(str(self.root) + "/", "") for c in command)}
        self.results["steps"].append(step)
        if limit < 10:
            step["outcome"] = "no time left"
            return self.save()
        begin = time.monotonic()
        environment = {**os.environ, "TRAINYARD_REQUIRE_GPU": "1", **(environment or {})}
        try:
            process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                       errors="replace", env=environment, cwd=self.out, start_new_session=True)
            try:
                output, _ = process.communicate(timeout=limit)
                code = process.returncode
                step["outcome"] = "passed" if code == 0 else f"failed: exit {code}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # Its children, too: what follows wants the GPU alone.
                output, _ = process.communicate()
                step["outcome"] = f"not done in {limit:.0f} s"
        except FileNotFoundError as missing:
            output, step["outcome"] = "", f"failed: {missing.filename} is not there"
        step["seconds"] = round(time.monotonic() - begin, 1)
        self.log.write(f"== {name}: {step['command']}\n{output}\n== {step['outcome']}, {step['seconds']} s\n\n")
        self.log.flush()
        if parse and output:
            step.update(parse(output))
        print(f"{name}: {step['outcome']} ({step['seconds']} s) {step.get('summary', '')}", flush=True)
        self.save()
        return output if step["outcome"] == "passed" else None

    def save(self):
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1) + "\n")

    def machine(self):
        fields = ["name", "driver_version", "memory.total", "clocks.sm", "clocks.max.sm", "power.limit", "temperature.gpu"]
        output = self.run("machine", ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"], 30)
        if output:
            self.results["machine"] = dict(zip(fields, (v.strip() for v in output.splitlines()[0].split(","))))
        self.results["machine"]["libraries"] = sorted(
            {os.path.basename(os.path.realpath(f)) for d in os.environ.get("LD_LIBRARY_PATH", "").split(":") if d
             for pattern in ("libcublasLt.so*", "libcudnn.so*", "libnccl.so*") for f in glob.glob(f"{d}/{pattern}")})
        self.results["machine"]["trainyard"] = subprocess.run(
            [self.root / "bin/trainyard-trainer", "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()

    def memory_gib(self):
        found = re.match(r"(\d+) MiB", self.results["machine"].get("memory.total", ""))
        return int(found[1]) / 1024 if found else 0

    def losses(self, name, precision, device, steps, every, directory, limit=120):
        config = self.out / f"{name}.yaml"
        config.write_text("version: 1\njob:\n" + "".join(
            "  " + line + "\n" for line in JOB.format(precision=precision, steps=steps, every=every,
                                                      directory=directory).strip().splitlines()))
        output = self.run(name, [self.root / "bin/trainyard-trainer", config, "--device", device], limit)
        return [float(x) for x in re.findall(r"loss (\d+\.\d+)", output or "")]


def tests(output):
    ran = re.search(r"\[  PASSED  \] (\d+) test", output)
    failed = re.findall(r"\[  FAILED  \] (\S+)", output)
    return {"passed": int(ran.group(1)) if ran else 0, "failed": sorted(set(f.rstrip(",") for f in failed)),
            "summary": f"{ran.group(1) if ran else 0} passed, {len(set(failed))} failed"}


def benchmarks(output):
    start = output.find("{\n")
    if start < 0:
        return {}
    rows = [{k: b[k] for k in ("name", "label", "real_time", "time_unit", "GFLOP/s", "GB/s", "of_bound") if k in b}
            for b in json.loads(output[start:])["benchmarks"]]
    return {"benchmarks": rows, "summary": f"{len(rows)} benchmarks"}


def step_time(output):
    found = re.search(r"step median ([\d.]+) ms of \d+ \(([\d.]+) to ([\d.]+)\), (\d+) tokens/s", output)
    rate = re.search(r"matrix rate ([\d.]+) GFLOP/s, memory rate ([\d.]+) GB/s.*MFU ([\d.]+)%", output)
    if not found or not rate:
        return {}
    ops = re.findall(r"^(\w+) +(\d+) +([\d.]+) +([\d.]+)%", output, re.M)
    return {"median_ms": float(found[1]), "range_ms": [float(found[2]), float(found[3])], "tokens_per_second": int(found[4]),
            "matrix_gflops": float(rate[1]), "memory_gbs": float(rate[2]), "mfu_of_measured_rate_percent": float(rate[3]),
            "share_by_op_percent": {name: float(share) for name, _, _, share in ops}, "summary": f"{found[4]} tokens/s"}


def curve(check):
    """200 steps of the byte model: the GPU's losses within the noise of bf16 of the CPU's, f32 nearer."""
    gpu = check.losses("byte_bf16_gpu", "BF16", "cuda", 200, 0, "curve-gpu")
    cpu = check.losses("byte_bf16_cpu", "BF16", "cpu", 200, 0, "curve-cpu", 240)
    if gpu and len(gpu) == len(cpu):
        difference = max(abs(a - b) for a, b in zip(gpu, cpu))
        check.results["curve"] = {"steps": len(gpu), "largest_difference": difference, "last": [gpu[-1], cpu[-1]],
                                  "within_noise": difference < 0.05}
    check.save()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, required=True)
    check = Check(parser.parse_args())
    binary, bench = check.root / "bin", check.root / "bench"
    check.machine()
    check.run("kernels", [binary / "cuda_kernels_test", "--gtest_brief=1"], 120, tests)
    check.run("training", [binary / "cuda_training_test", "--gtest_brief=1"], 120, tests)
    check.run("fault", [binary / "cuda_fault_test", "--gtest_brief=1"], 60, tests)
    for case in (["gpt2-124m", 16, 1024], ["llama3.2-1b", 2, 4096], ["llama2-7b", 1, 4096]):
        needs = 120 if case[0] == "llama2-7b" else 20
        if check.memory_gib() < needs:
            check.results["steps"].append({"name": f"train {case[0]}", "outcome": f"open: needs {needs} GiB"})
            continue
        check.run(f"train {case[0]}", [bench / "train_step", "--device", "cuda", "--case", case[0], "--micro", case[1],
                                       "--sequence", case[2], "--steps", 20], 90, step_time)
    check.run("bench", [bench / "kernels_bench", "--device=cuda", "--benchmark_format=json", "--benchmark_min_time=0.05"], 150,
              benchmarks)
    curve(check)
    sanitizer = shutil.which("compute-sanitizer", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    for tool in ("memcheck", "racecheck"):
        if sanitizer is None:
            check.results["steps"].append({"name": tool, "outcome": "open: no compute-sanitizer in PATH or /usr/local/cuda/bin"})
            check.save()
            continue
        check.run(tool, [sanitizer, "--tool", tool, "--error-exitcode", 9, binary / "cuda_kernels_test",
                         "--gtest_brief=1", "--gtest_filter=*Norm*:*Swi*:*Entropy*:*Attention*"], 120, tests)
    failed = [s["name"] for s in check.results["steps"] if s.get("outcome", "").startswith("failed")]
    if not check.results.get("curve", {}).get("within_noise", True):
        failed.append("curve")
    print("failed: " + ", ".join(failed) if failed else "nothing failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
