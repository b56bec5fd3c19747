"""The steps of gpu_check.sh; standard library alone. Exit status 1 where a step failed or was skipped."""
import argparse
import glob
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


def libraries():
    """NVIDIA's, by the names of the files that are found first."""
    known, _ = processes.answer(["ldconfig", "-p"], device.WANTS_AN_ANSWER_IN)
    directories = {os.path.dirname(line.rpartition(" => ")[2]) for line in known.splitlines() if " => " in line}
    directories.update(os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    found = {os.path.basename(os.path.realpath(file)) for directory in directories if directory
             for pattern in ("libcublasLt.so*", "libcudnn.so*", "libnccl.so*") for file in glob.glob(f"{directory}/{pattern}")}
    return sorted(found)


def machine(check, root):
    found, wrong = check.device.facts()
    if wrong:
        check.dead = wrong if wrong.startswith("nvidia-smi") else f"nvidia-smi: {wrong}"
    version, unknown = processes.answer([root / "bin/trainyard-trainer", "--version"], device.WANTS_AN_ANSWER_IN)
    check.results["machine"] = {"libraries": libraries(), **found, "trainyard": unknown or version.strip()}
    check.save()


def minutes(text):
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"wanted a number of minutes above 0, found {text}")
    return value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=minutes, required=True)
    parser.add_argument("--call", type=int, choices=calls.CALLS, default=1)
    options = parser.parse_args()
    probe = [options.root / "bin/cuda_kernels_test", "--gtest_filter=CudaBackend.EventsMeasureSeconds"]
    check = runner.Runner(options.out, 60 * options.minutes, device.Device(probe),
                          f"scripts/gpu_check.sh --call {options.call} --minutes {options.minutes:g}", options.root)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, check.interrupt)
    machine(check, options.root)
    with tempfile.TemporaryDirectory() as scratch:
        calls.CALLS[options.call](calls.Programs(check, options.root, scratch))
    failed = check.failed()
    if not check.results.get("curve", {}).get("within_noise", True):
        failed.append("the curves differ")
    runner.say("failed or skipped: " + ", ".join(failed) if failed else "nothing failed")
    sys.stdout = None  # What nobody reads any more cannot be flushed at exit.
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
