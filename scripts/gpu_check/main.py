"""The steps of gpu_check.sh; standard library alone. Exit status 1 if a step failed or was skipped.
"""
import argparse
import glob
import json
import math
import os
import pathlib
import signal
import sys
import tempfile

import calls
import device
import processes
import runner
import summary


def libraries():
    """NVIDIA's, by the names of the files that are found first."""
    known, _ = processes.answer(["ldconfig", "-p"], device.WANTS_AN_ANSWER_IN)
    directories = {os.path.dirname(line.rpartition(" => ")[2])
                   for line in known.splitlines() if " => " in line}
    directories.update(os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    patterns = ("libcublasLt.so*", "libcudnn.so*", "libnccl.so*")
    found = {os.path.basename(os.path.realpath(file)) for directory in directories if directory
             for pattern in patterns for file in glob.glob(f"{directory}/{pattern}")}
    return sorted(found)


def machine(check, root):
    found, wrong = check.device.facts()
    if wrong:
        check.dead = wrong if wrong.startswith("nvidia-smi") else f"nvidia-smi: {wrong}"
    version, unknown = processes.answer([root / "bin/trainyard-trainer", "--version"],
                                        device.WANTS_AN_ANSWER_IN)
    check.results["machine"] = {"libraries": libraries(), **found,
                                "trainyard": unknown or version.strip()}
    check.save()


def positive(text):
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"wanted a number above 0, found {text}")
    return value


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--after", type=pathlib.Path)
    parser.add_argument("--changed", choices=calls.MODELS, action="append", default=[])
    parser.add_argument("--spent", type=float, default=0)
    parser.add_argument("--scale", type=positive, default=1)
    options = parser.parse_args()
    options.before = None
    if options.after:
        try:
            options.before = json.loads(options.after.read_text())
        except (OSError, ValueError) as error:
            parser.error(f"--after {options.after}: {error}")
    return options


def main():
    options = arguments()
    call = 2 if options.before else 1
    probe = [options.root / "bin/cuda_kernels_test",
             "--gtest_filter=CudaBackend.EventsMeasureSeconds"]
    check = runner.Runner(options.out, calls.SECONDS[call] - options.spent / options.scale,
                          device.Device(probe), f"scripts/gpu_check.sh, call {call}",
                          options.root, options.scale)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, check.interrupt)
    machine(check, options.root)
    with tempfile.TemporaryDirectory() as scratch:
        programs = calls.Programs(check, options.root, scratch, options.before, options.changed)
        calls.CALLS[call](programs)
    told = summary.lines(check.results, check.seconds())
    (options.out / "summary.txt").write_text("\n".join(told) + "\n")
    runner.say("\n" + "\n".join(told))
    sys.stdout = None  # What nobody reads any more cannot be flushed at exit.
    sys.exit(1 if check.failed() else 0)


if __name__ == "__main__":
    main()
