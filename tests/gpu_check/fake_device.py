"""A device that is none: a directory with an nvidia-smi and programs that do what a test says."""
import os
import pathlib
import stat
import sys

SMI = """
import os, pathlib, sys, time
mood = (pathlib.Path(__file__).parent / "mood").read_text()
if mood == "hangs":
    time.sleep(1000)
if mood == "gone":
    sys.exit("Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error")
fields = next(word for word in sys.argv if word.startswith("--query-gpu=")).split("=")[1].split(",")
row = {"name": "Fake H200", "driver_version": "580.1", "memory.total": "143771",
       "clocks.sm": "1980", "clocks.mem": "3201", "power.draw": "[N/A]", "temperature.gpu": "41",
       "power.limit": "700", "clocks.max.sm": "1980", "compute_cap": "9.0"}
print(", ".join(row.get(field, "0") for field in fields), flush=True)
while "--loop-ms=500" in sys.argv:
    time.sleep(0.05)
    print(", ".join(row.get(field, "0") for field in fields), flush=True)
"""


class FakeDevice:
    """`interpreter`: of the programs, where they run."""

    def __init__(self, directory, interpreter=sys.executable):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.interpreter = interpreter
        self.is_now("well")
        self.program("nvidia-smi", SMI)
        self.program("probe", "")

    def is_now(self, mood):
        """well, gone (the driver has lost it) or hangs."""
        (self.directory / "mood").write_text(mood)

    def program(self, name, python):
        """Its path. A Python program: what follows runs without the packages of the interpreter's
        site, which halves the time that hundreds of starts take."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{self.interpreter} -IS\n{python}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def environment(self):
        return {**os.environ, "PATH": f"{self.directory}:{os.environ['PATH']}",
                "PYTHONPATH": str(self.directory)}
