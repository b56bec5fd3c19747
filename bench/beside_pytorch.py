#!/usr/bin/env python3
"""Training speed beside PyTorch: the same model, batch, threads and machine, the two in turn within one run.

  bench/beside_pytorch.py [--python PYTHON] [--rounds 3] [--steps 7] [--threads 2] [--case byte|124m]...

PYTHON is an interpreter that can import torch (`apt-get install python3-torch`, or a virtual environment). Needs
build/bin/trainyard-trainer (scripts/build.sh trainyard-trainer). Quotes medians over all rounds, first two steps of each left out.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CASES = {
    "byte": {"micro": 16, "sequence": 256,
             "model": {"family": "llama", "layers": 6, "hidden": 256, "heads": 8, "kv_heads": 4, "ffn": 768, "vocab": 256}},
    "124m": {"micro": 2, "sequence": 512,
             "model": {"family": "llama", "layers": 12, "hidden": 768, "heads": 12, "kv_heads": 4, "ffn": 2048, "vocab": 32000}},
}
WARMUP = 2


def torch_seconds(args, run):
    out = subprocess.run([args.python, str(ROOT / "bench/torch_llama.py"), json.dumps(run)], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"beside_pytorch: {args.python} cannot run the peer:\n{out.stderr}")
    result = json.loads(out.stdout.splitlines()[-1])
    return result["seconds"][WARMUP:], f"PyTorch {result['version']}"


def trainyard_seconds(args, run):
    job = {"name": "beside-pytorch", "model": {"architecture": dict(run["model"], max_seq=run["sequence"])},
           "precision": run["precision"], "steps": run["steps"], "data": {"synthetic": {}},
           "batch": {"global": run["micro"], "micro": run["micro"], "sequence": run["sequence"]},
           "optimizer": {"adamw": {"learning_rate": 3e-4}}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump({"version": 1, "job": job}, config)
        config.flush()
        out = subprocess.run([str(ROOT / "build/bin/trainyard-trainer"), config.name], capture_output=True, text=True,
                             env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
    if out.returncode != 0:
        sys.exit(f"beside_pytorch: the trainer failed:\n{out.stdout}{out.stderr}")
    seconds = [float(s) for s in re.findall(r"train_step_timing in s: ([0-9.]+)", out.stdout + out.stderr)]
    return seconds[WARMUP:], "Trainyard"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", action="append", choices=CASES)
    args = parser.parse_args()
    print(f"{'model':6} {'dtype':5} {'system':24} {'median s':>9} {'min':>8} {'max':>8} {'tokens/s':>9}")
    for name in args.case or CASES:
        for precision in ("F32", "BF16"):
            run = dict(CASES[name], precision=precision, steps=args.steps, threads=args.threads)
            seconds, tokens = {}, run["micro"] * run["sequence"]
            for _ in range(args.rounds):
                for measure in (trainyard_seconds, torch_seconds):
                    measured, system = measure(args, run)
                    seconds.setdefault(system, []).extend(measured)
            for system, all_seconds in seconds.items():
                median = statistics.median(all_seconds)
                print(f"{name:6} {precision:5} {system:24} {median:9.4f} {min(all_seconds):8.4f} {max(all_seconds):8.4f} "
                      f"{tokens / median:9.0f}", flush=True)
            ours, theirs = (statistics.median(s) for s in seconds.values())
            print(f"{name:6} {precision:5} {'PyTorch / Trainyard time':24} {theirs / ours:9.2f}", flush=True)


if __name__ == "__main__":
    main()
