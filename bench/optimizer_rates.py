#!/usr/bin/env python3
"""A small byte model with each optimizer at three learning rates: validation losses, and the best rate of each.

  bench/optimizer_rates.py CORPUS [--steps 300] [--seeds 2] [--threads 2]

CORPUS is a text file (scripts/quickstart.sh makes one). Needs build/bin/trainyard-trainer. The best rate is that with the
least mean of the validation losses over the seeds.
"""
import argparse
import statistics

from precision_curves import train

MODEL = {"family": "llama", "layers": 2, "hidden": 128, "heads": 4, "kv_heads": 2, "ffn": 384, "vocab": 256, "max_seq": 256}
OPTIMIZERS = {"adamw": ((1e-3, 3e-3, 1e-2), 0.1), "lion": ((3e-4, 1e-3, 3e-3), 1.0), "muon": ((3e-3, 1e-2, 3e-2), 0.1)}  # Rates, weight decay.


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    for optimizer, (rates, decay) in OPTIMIZERS.items():
        means = {}
        for rate in rates:
            chosen = {optimizer: {"learning_rate": rate, "weight_decay": decay},
                      "schedule": {"cosine": {"warmup_steps": 20}}, "clip_norm": 1.0}
            losses = [train(args, seed, model={"architecture": MODEL}, precision="BF16", optimizer=chosen)[1]
                      for seed in range(1, args.seeds + 1)]
            means[rate] = statistics.mean(losses)
            print(f"| {optimizer} | {rate:g} | {' | '.join(f'{loss:.4f}' for loss in losses)} | {means[rate]:.4f} |", flush=True)
        print(f"{optimizer}: best at {min(means, key=means.get):g}", flush=True)


if __name__ == "__main__":
    main()
