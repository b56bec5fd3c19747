"""The rows that a device fills, as bench/predict_step has them: a table for docs/performance.md.

    python3 scripts/gpu_check/predictions.py build/bench h100|h200
"""
import dataclasses
import re
import subprocess
import sys

import cases
import readers

# What the other rows lack: experts, latent attention, Mamba-2's scan, sinks and documents.
LAYERS = [dataclasses.replace(case, micro=4, sequence=4096) for case in cases.LAYERS_OF_FEW_WORDS]
PARTS = ["products", "head and loss", "attention", "experts", "memory-bound", "optimizer", "gaps"]


def main():
    programs, gpu = sys.argv[1:]
    print("| row | " + " | ".join(PARTS) + " | step, ms | tokens/s | MFU | memory |")
    print("|---|" + "---|" * (len(PARTS) + 4))
    for row in [*cases.ROWS, *cases.MORE_ROWS, *LAYERS]:
        command = [f"{programs}/predict_step", "--gpu", gpu, *(str(word) for word in row.options())]
        text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found = readers.prediction(text)["predicted"]
        parts = " | ".join(f"{found['parts_ms'][part]:.1f}" for part in PARTS)
        memory = re.match(r"[\d.]+ \w+", found["memory"])[0]
        print(f"| {row} | {parts} | {found['step_ms']:.1f} | {found['tokens_per_second']:,} | "
              f"{found['mfu_percent']:.1f} % | {memory} |")


if __name__ == "__main__":
    main()
