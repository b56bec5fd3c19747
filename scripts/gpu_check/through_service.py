"""One job on one device as users run it: `trainyard up`, submit, watch. Says what was trained,
where and how fast.

    python3 scripts/gpu_check/through_service.py BIN DIRECTORY [--device cuda|cpu]
"""
import argparse
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
import time

STOPS_IN = 60  # Seconds: `trainyard up` itself waits 35 for its worker.
SPEC = """
name: through-the-service
model: {preset: gpt2-124m, overrides: {layers: %d, max_seq: 256}}
precision: BF16
batch: {global: 8, micro: 8, sequence: 256}
data: {synthetic: {}}
optimizer: {adamw: {learning_rate: 1e-3}, clip_norm: 1.0}
steps: %d
checkpoint: {directory: checkpoints, every_steps: 0}
devices: 1
seed: 1
"""


def fail(why):
    sys.exit(f"through_service: {why}")


class Service:
    def __init__(self, binaries, directory):
        self.trainyard = str(binaries / "trainyard")
        self.log = directory / "up.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [self.trainyard, "up", "--state", directory / "state", "--listen", "127.0.0.1:0",
                 "--metrics-listen", "127.0.0.1:0"],
                stdout=log, stderr=subprocess.STDOUT, cwd=directory)
        self.address = self.wait_for(r"^ready controller=(\S+)")

    def wait_for(self, pattern):
        for _ in range(300):
            found = re.search(pattern, self.log.read_text(), re.M)
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        fail(f"the service did not start: {self.log.read_text()[-500:]}")

    def call(self, *words):
        ran = subprocess.run([self.trainyard, words[0], "--controller", self.address, *words[1:]],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             check=False)
        if ran.returncode != 0:
            fail(f"trainyard {' '.join(words)}: exit {ran.returncode}: {ran.stderr.strip()[-500:]}")
        return ran.stdout

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=STOPS_IN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            fail(f"the service did not stop in {STOPS_IN} s")


def train(service, directory, device, layers, steps):
    workers = json.loads(service.call("workers", "-o", "json"))["workers"]
    devices = [device for worker in workers for device in worker["devices"]]
    wanted = [d for d in devices if d["kind"] == f"DEVICE_KIND_{device.upper()}"]
    if not wanted:
        fail(f"wanted a device of kind {device}, found {[d['kind'] for d in devices]}")
    spec = directory / "spec.yaml"
    spec.write_text(SPEC % (layers, steps))
    job = service.call("submit", str(spec), "--set",
                       f"checkpoint.directory={directory / 'checkpoints'}").strip()
    service.call("watch", job)
    state = json.loads(service.call("get", job, "-o", "json"))["state"]
    records = [json.loads(line) for line in service.call("steps", job, "-o", "jsonl").splitlines()]
    losses = [record["loss"] for record in records]
    finite = all(math.isfinite(loss) for loss in losses)
    if state != "JOB_STATE_SUCCEEDED" or len(records) != steps or not finite:
        fail(f"{state}, {len(records)} of {steps} steps, losses {losses[:3]} ... {losses[-3:]}")
    later = records[len(records) // 2:]
    rates = sorted(float(record["tokens"]) / record["seconds"] for record in later)
    print(f"through the service: {steps} steps on {wanted[0]['model']}, "
          f"loss {losses[0]:.4f} to {losses[-1]:.4f}, {rates[len(rates) // 2]:.0f} tokens/s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    service = Service(options.binaries.resolve(), options.directory.resolve())
    try:
        train(service, options.directory.resolve(), options.device, options.layers, options.steps)
    finally:
        service.stop()


if __name__ == "__main__":
    main()
