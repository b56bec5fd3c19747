#!/usr/bin/env python3
"""Training speed beside PyTorch: the same model, batch, threads and machine, all systems in turn within one run.

  bench/beside_pytorch.py [--python PYTHON] [--rounds 3] [--steps 7] [--threads 2] [--precision f32|bf16]... [--case CASE]...

PYTHON is an interpreter that can import torch (`apt-get install python3-torch`, or a virtual environment), `transformers`
for the cases that are files of bench/families, and PEFT for those of bench/adapters. Needs build/bench/train_step
(scripts/build.sh train_step). A peer has several forms: compiled or not, the implementations of attention and experts in
`transformers`, and the dtype of adapters. Quotes medians over all rounds, without each run's first steps; the ratio is that
to the fastest form.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WARMUP = 3  # A compiled model compiles again in the second step.
LLAMA_FORMS = {"": {"compile": False}, ", compiled": {"compile": True}}
EXPERT_FORMS = {f", {attention}, {experts}{', compiled' * compiled}":
                {"attention": attention, "experts": experts, "compile": compiled}
                for attention, experts, compiled in (("sdpa", "eager", False), ("sdpa", "grouped_mm", False),
                                                     ("sdpa", "grouped_mm", True), ("eager", "grouped_mm", False),
                                                     ("eager", "grouped_mm", True))}
ADAPTER_FORMS = {f", {dtype} adapters{', compiled' * compiled}": {"attention": "sdpa", "experts": "eager", "adapters": dtype,
                                                                 "compile": compiled}
                 for dtype in ("F32", "BF16") for compiled in (False, True)}
CASES = {
    "byte": {"micro": 16, "sequence": 256, "forms": LLAMA_FORMS,
             "model": {"layers": 6, "hidden": 256, "heads": 8, "kv_heads": 4, "ffn": 768, "vocab": 256}},
    "124m": {"micro": 2, "sequence": 512, "forms": LLAMA_FORMS,
             "model": {"layers": 12, "hidden": 768, "heads": 12, "kv_heads": 4, "ffn": 2048, "vocab": 32000}},
}
for path in sorted((ROOT / "bench/families").glob("*.json")):
    forms = {name: form for name, form in EXPERT_FORMS.items()
             if not (path.stem == "gpt_oss" and form["attention"] == "sdpa")}  # `transformers` has no sinks there.
    CASES[path.stem] = {"micro": 2, "sequence": 512, "forms": forms, "path": path, "config": json.loads(path.read_text())}
for path in (ROOT / "bench/adapters").glob("*.json"):
    CASES["lora_" + path.stem] = {"micro": 2, "sequence": 1024, "forms": ADAPTER_FORMS, "path": path, "lora": 16,
                                  "config": json.loads(path.read_text())}


def output_of(command):
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"beside_pytorch: {' '.join(map(str, command))[:300]} failed:\n{out.stdout[-2000:]}{out.stderr[-2000:]}")
    return out.stdout


def torch_seconds(args, run, form):
    peer = "transformers_step.py" if "config" in run else "torch_llama.py"
    shapes = {key: value for key, value in run.items() if key not in ("forms", "path")}
    result = json.loads(output_of([args.python, ROOT / "bench" / peer, json.dumps(shapes | form)]).splitlines()[-1])
    return result["seconds"][WARMUP:], f"PyTorch {result['version']}"


def trainyard_seconds(args, name, run):
    out = output_of([ROOT / "build/bench/train_step", "--case", run.get("path", name), "--micro", str(run["micro"]),
                     "--sequence", str(run["sequence"]), "--precision", run["precision"].lower(),
                     "--threads", str(args.threads), "--steps", str(args.steps)] +
                    (["--lora", str(run["lora"])] if "lora" in run else []))
    return [float(ms) / 1e3 for ms in re.search(r"^steps, ms:(.*)$", out, re.MULTILINE)[1].split()]


def compare(args, name, precision):
    run = dict(CASES[name], precision=precision.upper(), steps=args.steps + WARMUP, threads=args.threads)
    seconds = {"Trainyard": []}
    for _ in range(args.rounds):
        seconds["Trainyard"] += trainyard_seconds(args, name, run)
        for form, options in run["forms"].items():
            measured, system = torch_seconds(args, run, options)
            seconds.setdefault(system + form, []).extend(measured)
    tokens = run["micro"] * run["sequence"]
    medians = {system: statistics.median(measured) for system, measured in seconds.items()}
    for system, measured in seconds.items():
        print(f"{name:12} {precision:5} {system:44} {medians[system]:9.4f} {min(measured):8.4f} {max(measured):8.4f} "
              f"{tokens / medians[system]:9.0f}", flush=True)
    ours = medians.pop("Trainyard")
    print(f"{name:12} {precision:5} {'fastest of PyTorch / Trainyard':44} {min(medians.values()) / ours:9.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", action="append", choices=("f32", "bf16"))
    parser.add_argument("--case", action="append", choices=CASES)
    args = parser.parse_args()
    print(f"{'model':12} {'dtype':5} {'system':44} {'median s':>9} {'min':>8} {'max':>8} {'tokens/s':>9}")
    for name in args.case or CASES:
        for precision in args.precision or ("f32", "bf16"):
            compare(args, name, precision)


if __name__ == "__main__":
    main()
