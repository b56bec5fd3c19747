#!/usr/bin/env python3
"""Loss curves of the byte model in bf16 and in f32, from the same seeds: is the difference within the noise of a seed?

  bench/precision_curves.py CORPUS [--steps 300] [--seeds 3] [--threads 2] [--svg docs/images/precision.svg]

CORPUS is a text file (scripts/quickstart.sh makes one). Needs build/bin/trainyard-trainer. Noise at a step is the standard
deviation over the f32 seeds of the loss's running mean.
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
WINDOW = 20  # Steps of the running mean.
COLOURS = {"F32": "#1f5fa8", "BF16": "#d1602a"}
WIDTH, HEIGHT, MARGIN = 720, 360, 46


def train(args, seed, **changes):
    """Losses of all steps, and the validation loss at the end. `changes` are fields of the job."""
    model = {"family": "llama", "layers": 6, "hidden": 256, "heads": 8, "kv_heads": 4, "ffn": 768, "vocab": 256, "max_seq": 256}
    job = {"name": "precision", "model": {"architecture": model}, "steps": args.steps, "seed": seed,
           "data": {"text": {"path": os.path.abspath(args.corpus), "tokenizer": "BYTES", "validation_fraction": 0.02}},
           "batch": {"global": 4, "micro": 4, "sequence": 256},
           "optimizer": {"adamw": {"learning_rate": 1e-3, "weight_decay": 0.1}, "schedule": {"cosine": {"warmup_steps": 20}},
                         "clip_norm": 1.0},
           "validation": {"every_steps": args.steps, "batches": 16}} | changes
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump({"version": 1, "job": job}, config)
        config.flush()
        out = subprocess.run([str(ROOT / "build/bin/trainyard-trainer"), config.name], capture_output=True, text=True,
                             env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
    losses = [float(loss) for loss in re.findall(r"\| loss ([0-9.]+)", out.stdout)]
    validation = re.findall(r"validation loss ([0-9.]+)", out.stdout)
    if out.returncode != 0 or len(losses) != args.steps or not validation:
        sys.exit(f"{sys.argv[0]}: wanted {args.steps} losses and a validation loss of the trainer:\n{out.stdout[-2000:]}{out.stderr}")
    return losses, float(validation[-1])


def running_mean(values):
    return [statistics.mean(values[max(0, i - WINDOW + 1):i + 1]) for i in range(len(values))]


def svg(curves, steps):
    low = min(min(c) for runs in curves.values() for c in runs)
    high = max(max(c) for runs in curves.values() for c in runs)
    x = lambda step: MARGIN + (WIDTH - MARGIN - 10) * step / steps
    y = lambda loss: HEIGHT - MARGIN - (HEIGHT - MARGIN - 10) * (loss - low) / (high - low)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">step</text>',
             f'<text x="{MARGIN}" y="{HEIGHT - MARGIN + 16}">1</text>',
             f'<text x="{WIDTH - 10}" y="{HEIGHT - MARGIN + 16}" text-anchor="end">{steps}</text>']
    for i in range(5):
        loss = low + (high - low) * i / 4
        lines += [f'<text x="{MARGIN - 6}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.2f}</text>',
                  f'<path d="M{MARGIN} {y(loss):.1f}H{WIDTH - 10}" stroke="#ddd"/>']
    for row, (precision, runs) in enumerate(curves.items()):
        lines.append(f'<text x="{WIDTH - 20}" y="{30 + 18 * row}" text-anchor="end" fill="{COLOURS[precision]}">'
                     f'{precision.lower()}, {len(runs)} seeds</text>')
        for curve in runs:
            points = " ".join(f"{x(i + 1):.1f},{y(loss):.1f}" for i, loss in enumerate(curve))
            lines.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[precision]}" stroke-width="1" opacity="0.7"/>')
    return "\n".join(lines + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--svg", default=str(ROOT / "docs/images/precision.svg"))
    args = parser.parse_args()
    curves = {"F32": [], "BF16": []}
    for seed in range(1, args.seeds + 1):
        for precision, runs in curves.items():
            losses, validation = train(args, seed, precision=precision)
            runs.append(running_mean(losses))
            print(f"seed {seed} {precision:4}: running mean of {WINDOW} losses at the end {runs[-1][-1]:.4f}, "
                  f"validation loss {validation:.4f}", flush=True)
    after = range(WINDOW, args.steps)
    noise = [statistics.stdev(curve[i] for curve in curves["F32"]) for i in after]
    gaps = [statistics.mean(curve[i] for curve in curves["BF16"]) - statistics.mean(curve[i] for curve in curves["F32"]) for i in after]
    print(f"difference of the means over seeds, bf16 - f32: {statistics.mean(gaps):+.5f} on average, "
          f"{max(gaps, key=abs):+.5f} at most; noise of a seed in f32: {statistics.mean(noise):.5f} on average")
    Path(args.svg).write_text(svg(curves, args.steps))


if __name__ == "__main__":
    main()
