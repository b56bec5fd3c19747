"""Wall clocks that a test moves while programs run."""
import pathlib
import struct
import subprocess


def build_shim(path):
    """What a program preloads, together with CHAOS_CLOCK, the path of its clock."""
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", path, pathlib.Path(__file__).parent / "clock_shim.c", "-ldl"], check=True)


class Clock:
    """The wall clock of one machine."""

    def __init__(self, path):
        self.path = path
        self.jump(0)

    def jump(self, seconds):
        """To so many seconds off the true time, for programs that run, too."""
        with open(self.path, "r+b" if self.path.exists() else "wb") as file:
            file.write(struct.pack("q", int(seconds * 1e9)))
