"""The rows that a device fills, as bench/predict_step has them: a table for docs/performance.md.

    python3 scripts/gpu_check/predictions.py build/bench
"""
import dataclasses
import re
import subprocess
import sys

import calls
import readers

PARTS = ["products", "head and loss", "attention", "experts", "memory-bound", "optimizer", "gaps"]


def main():
    print("| row | " + " | ".join(PARTS) + " | step, ms | tokens/s | MFU | memory |")
    print("|---|" + "---|" * (len(PARTS) + 4))
    for case in [*calls.ROWS, *calls.MORE_ROWS, calls.ROW_BEYOND_MEMORY]:
        for deterministic in (True, False):
            row = dataclasses.replace(case, deterministic=deterministic)
            command = [f"{sys.argv[1]}/predict_step", *(str(word) for word in row.options())]
            text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            found = readers.prediction(text)["predicted"]
            parts = " | ".join(f"{found['parts_ms'][part]:.1f}" for part in PARTS)
            memory = re.match(r"[\d.]+ \w+", found["memory"])[0]
            print(f"| {row} | {parts} | {found['step_ms']:.1f} | {found['tokens_per_second']:,} | {found['mfu_percent']:.1f} % | {memory} |")


if __name__ == "__main__":
    main()
