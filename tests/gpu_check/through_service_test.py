"""Runs a small job through the service on CPUs as the check runs one on a GPU."""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    with tempfile.TemporaryDirectory() as scratch:
        ran = subprocess.run([sys.executable, ROOT / "scripts/gpu_check/through_service.py", os.environ["TRAINYARD_BIN"], scratch,
                              "--device", "cpu", "--layers", "1", "--steps", "4"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, timeout=1200, check=False)  # With a sanitizer it takes minutes.
        print(ran.stdout)
        if ran.returncode != 0 or not ran.stdout.startswith("through the service: 4 steps on cpu"):
            sys.exit(f"exit {ran.returncode}; wanted a line that begins with \"through the service: 4 steps on cpu\"")


if __name__ == "__main__":
    main()
