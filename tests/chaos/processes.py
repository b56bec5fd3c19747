"""What runs, by /proc."""

import dataclasses
import os
import pathlib
import re
import signal

TICKS = os.sysconf("SC_CLK_TCK")
RANK = re.compile(r"(.*)/ranks/(j-[^./]+)\.(\d+)\.(\d+)(?:/config\.json)?$")


@dataclasses.dataclass(frozen=True, order=True)
class RankProcess:
    """A trainer, or the supervisor above one."""
    job: str
    epoch: int
    rank: int
    state_directory: str  # Of its worker.
    program: str          # trainer or supervisor
    pid: int
    stopped: bool = dataclasses.field(compare=False)
    cpu_seconds: float = dataclasses.field(compare=False)


def stat(pid):
    """The fields of /proc from the state on (R, S, T for stopped, Z); empty where there is no such process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
        return text[text.rindex(")") + 2:].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def commands():
    """pid -> words of the command line, of all that run but zombies."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                line = pathlib.Path(f"/proc/{name}/cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue  # It ended meanwhile.
            if line:  # A zombie has none.
                found[int(name)] = line.decode(errors="replace").rstrip("\0").split("\0")
    return found


def ranks(directory):
    """Trainers and supervisors of workers whose state lies below `directory`, in order."""
    found = []
    for pid, words in commands().items():
        place = RANK.match(words[-1])
        program = pathlib.Path(words[0]).name
        supervisor = program == "trainyard-worker" and "--supervise" in words
        if not place or not place[1].startswith(f"{directory}/"):
            continue
        if (supervisor or program == "trainyard-trainer") and (fields := stat(pid)):
            found.append(RankProcess(place[2], int(place[3]), int(place[4]), place[1],
                                     "supervisor" if supervisor else "trainer", pid, fields[0] == "T",
                                     (int(fields[11]) + int(fields[12])) / TICKS))
    return sorted(found)


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # It ended meanwhile.


def kill(pid):
    send(pid, signal.SIGKILL)
