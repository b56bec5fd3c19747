#!/usr/bin/env python3
"""Losses of the byte model in each FP8 precision beside BF16, from the same seeds: is the difference within 1 %?

  bench/fp8_curves.py CORPUS [--steps 300] [--seeds 3] [--threads 2]

CORPUS is a text file (scripts/quickstart.sh makes one). Needs build/bin/trainyard-trainer. Prints each run's running mean of the
last losses and its validation loss, and for each precision how much more they are than those of BF16. Ends with 1 if a mean over
seeds is more than 1 % away.
"""
import argparse
import statistics
import sys

from precision_curves import running_mean, train

MODEL = {"family": "llama", "layers": 2, "hidden": 256, "heads": 8, "kv_heads": 4, "ffn": 768, "vocab": 256, "max_seq": 128}
BATCH = {"global": 4, "micro": 4, "sequence": 128}
RECIPES = ("FP8_DELAYED", "FP8_CURRENT", "FP8_BLOCKWISE", "FP8_ROWWISE")
MOST = 0.01  # Of BF16's loss.


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    ends = {precision: [] for precision in ("BF16", *RECIPES)}  # Of each seed: the mean loss, and the validation loss.
    for seed in range(1, args.seeds + 1):
        for precision, of_seeds in ends.items():
            losses, validation = train(args, seed, precision=precision, model={"architecture": MODEL}, batch=BATCH)
            of_seeds.append((running_mean(losses)[-1], validation))
            print(f"seed {seed} {precision:13}: loss {of_seeds[-1][0]:.4f}, validation loss {validation:.4f}", flush=True)
    failed = False
    for precision in RECIPES:
        apart = [[ours / base - 1 for ours, base in zip(run, of_bf16)] for run, of_bf16 in zip(ends[precision], ends["BF16"])]
        mean = [statistics.mean(column) for column in zip(*apart)]
        failed |= any(abs(difference) > MOST for difference in mean)
        print(f"{precision:13} - BF16: loss {mean[0]:+.2%}, validation loss {mean[1]:+.2%}; of single seeds "
              f"{min(map(min, apart)):+.2%} to {max(map(max, apart)):+.2%}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
