"""What nvidia-smi says of the device: what it is, whether it lives, clocks and power while a step
runs."""
import statistics
import subprocess
import tempfile

import processes

FACTS = ["name", "driver_version", "vbios_version", "memory.total", "clocks.max.sm",
         "clocks.max.mem", "power.limit", "compute_cap", "ecc.mode.current"]
SAMPLED = {"clocks.sm": "sm_mhz", "clocks.mem": "memory_mhz", "power.draw": "watts",
           "temperature.gpu": "celsius"}
WANTS_AN_ANSWER_IN = 10  # Seconds.


def query(fields, *options):
    return ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}",
            "--format=csv,noheader,nounits", *options]


class Device:
    """`probe`: a command that uses the device for a moment. A driver may answer for a device that
    cannot compute any more."""

    def __init__(self, probe):
        self._probe = [str(word) for word in probe]

    def facts(self):
        """What it is, and "" or why that is not known."""
        text, wrong = processes.answer(query(FACTS), WANTS_AN_ANSWER_IN)
        values = [value.strip() for value in text.partition("\n")[0].split(",")]
        if not wrong and len(values) != len(FACTS):
            wrong = f"nvidia-smi says {text[:100]!r}, wanted {len(FACTS)} values"
        return ({}, wrong) if wrong else (dict(zip(FACTS, values)), "")

    def lost(self):
        """Why the driver does not answer for the device, "" if it does."""
        return processes.answer(query(["name"]), WANTS_AN_ANSWER_IN)[1]

    def probe(self):
        """Why a tiny kernel does not run, "" if it does."""
        return processes.answer(self._probe, WANTS_AN_ANSWER_IN)[1]

    def sample(self):
        return Sampler()


class Sampler:
    """Twice a second until stop()."""

    def __init__(self):
        self.file = tempfile.TemporaryFile(mode="w+")
        try:
            self.process = processes.start(query(SAMPLED, "--loop-ms=500"), stdout=self.file,
                                           stderr=subprocess.DEVNULL)
        except OSError:
            self.process = None

    def stop(self):
        if self.process is None:
            return {}
        self.process.kill()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            pass  # It hangs in the driver; lost() says so.
        with self.file:
            self.file.seek(0)
            return summary(self.file.read())


def summary(text):
    """The least, median and most of each reading. Rows that are cut off or say [N/A] do not
    count."""
    columns = {name: [] for name in SAMPLED.values()}
    for line in text.splitlines():
        values = line.split(",")
        if len(values) != len(columns):
            continue
        for name, value in zip(columns, values):
            try:
                columns[name].append(float(value))
            except ValueError:
                pass
    return {"device": {name: [min(found), statistics.median(found), max(found)]
                       for name, found in columns.items() if found}}
