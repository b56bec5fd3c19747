#!/usr/bin/env python3
"""Losses of the byte model with AdamW's state in 8 bytes beside that in f32, from the same seeds: is the difference within 0.5 %?

  bench/state_curves.py CORPUS [--steps 300] [--seeds 3] [--threads 2]

CORPUS is a text file (scripts/quickstart.sh makes one). Needs build/bin/trainyard-trainer. Prints each run's running mean of the
last losses and its validation loss, and how much more they are with COMPACT than with F32. Ends with 1 if a mean over seeds is
more than 0.5 % away.
"""
import argparse
import statistics
import sys

from fp8_curves import BATCH, MODEL
from precision_curves import running_mean, train

STATES = ("F32", "COMPACT")
MOST = 0.005  # Of the loss with F32.


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    ends = {state: [] for state in STATES}  # Of each seed: the mean loss, and the validation loss.
    for seed in range(1, args.seeds + 1):
        for state, of_seeds in ends.items():
            optimizer = {"adamw": {"learning_rate": 1e-3, "weight_decay": 0.1, "state": state},
                         "schedule": {"cosine": {"warmup_steps": 20}}, "clip_norm": 1.0}
            losses, validation = train(args, seed, precision="BF16", model={"architecture": MODEL}, batch=BATCH, optimizer=optimizer)
            of_seeds.append((running_mean(losses)[-1], validation))
            print(f"seed {seed} {state:7}: loss {of_seeds[-1][0]:.4f}, validation loss {validation:.4f}", flush=True)
    apart = [[ours / base - 1 for ours, base in zip(*runs)] for runs in zip(ends["COMPACT"], ends["F32"])]
    mean = [statistics.mean(column) for column in zip(*apart)]
    print(f"COMPACT - F32: loss {mean[0]:+.2%}, validation loss {mean[1]:+.2%}; of single seeds "
          f"{min(map(min, apart)):+.2%} to {max(map(max, apart)):+.2%}")
    sys.exit(any(abs(difference) > MOST for difference in mean))


if __name__ == "__main__":
    main()
