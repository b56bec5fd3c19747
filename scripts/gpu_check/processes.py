"""Children: none outlives this process, what they started is found again, and no answer is awaited
for ever."""
import ctypes
import os
import pathlib
import signal
import subprocess
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
LIBC = ctypes.CDLL(None)


def start(command, **options):
    return subprocess.Popen(
        command, preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), **options)


def answer(command, seconds):
    """What a command prints, and "" or why that is no answer."""
    name = str(command[0]).rpartition("/")[2]
    try:
        process = start([str(word) for word in command], stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, start_new_session=True, text=True,
                        errors="replace")
    except OSError as error:
        return "", f"{command[0]}: {error.strerror}"
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()  # Not waited for: a process that hangs in the driver stays.
        return "", f"{name} gives no answer in {seconds} s"
    if process.returncode != 0:
        last = (output.strip().splitlines() or [f"exit {process.returncode}"])[-1]
        return output, f"{name}: {last[:200]}"
    return output, ""


def adopt_orphans():
    """From now on a process whose parent has ended becomes a child of this one, whatever its group
    and session."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)


def children():
    found = set()
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has just ended.
        if int(fields[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


def end_orphans(known, seconds=3):
    """Kills the children that are not among `known`, and what they leave behind; gives up after
    `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        orphans = children() - known
        if not orphans:
            return
        for orphan in orphans:
            # Not reaped yet, so that the number is still its own.
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, os.WNOHANG)
        time.sleep(0.01)
