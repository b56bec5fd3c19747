"""Runs the steps of a check one after the other, so that no step costs more than itself.

Whatever a step does (hangs, prints rubbish, dies, floods the log), the next one runs, and what is known is in results.json:
it is written anew before and after each step, whole or not at all. Only where the device itself has died, or a signal has
ended the check, is the rest left out, by name. What an earlier check left in the directory keeps its own names.
"""
import datetime
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import processes

LONGEST_OUTPUT = 64 << 20  # Bytes: a step that writes more is ended.
KEPT_HEAD, KEPT_TAIL = 100_000, 400_000  # Bytes of a step's output that the log keeps.
SHORTEST_STEP = 5  # Seconds: with less left a step is not begun.
PASSED = "passed"
RESULTS = (("results", "json"), ("check", "log"))


class Unreadable(Exception):
    """A step's output is not what its reader wants."""


class Runner:
    """`device` has sample() -> object with stop() -> dict, and alive(environment) -> str, "" where it is."""

    def __init__(self, out, seconds, device, command, root=""):
        self.out = pathlib.Path(out)
        self.root = str(root)
        self.device = device
        self.deadline = time.monotonic() + seconds
        self.dead = ""  # Why the rest is skipped.
        set_aside(self.out)
        processes.adopt_orphans()
        self.results = {"date": now(), "command": command, "machine": {}, "steps": []}
        self.save()

    def interrupt(self, number, _frame):
        """A handler of signals: the step that runs ends now, and the rest is left out."""
        self.dead = self.dead or f"interrupted by {signal.Signals(number).name}"

    def left(self):
        return self.deadline - time.monotonic()

    def save(self):
        temporary = self.out / ".results.json"
        temporary.write_text(json.dumps(self.results, indent=1) + "\n")
        os.replace(temporary, self.out / "results.json")

    def leave_out(self, name, reason):
        """Notes a step that cannot run: an open row, not a failure."""
        if self.dead:
            return self._end({"name": name}, f"skipped: {self.dead}")
        return self._end({"name": name}, f"open: {reason}")

    def run(self, name, command, limit, read=None, environment=None, reports_failures=False):
        """Runs a command, `limit` seconds at most, and returns its entry in the results.

        `read` takes its output as text and returns a dict for the entry; a dict with a "failed" is a failure, and so is
        what it raises. It is called for a step that ended by itself with exit status 0. With `reports_failures` it is
        called however the step ended, which stays a failure whatever `read` says.
        """
        command = [str(word) for word in command]
        step = {"name": name, "command": " ".join(command).replace(self.root + "/", "") if self.root else " ".join(command)}
        if self.dead:
            return self._end(step, f"skipped: {self.dead}")
        limit = min(limit, self.left())
        if limit < SHORTEST_STEP:
            return self._end(step, "skipped: no time left")
        step.update(outcome="running", began=now())
        self.results["steps"].append(step)
        self.save()
        self.results["steps"].pop()
        begin = time.monotonic()
        sampler = self.device.sample()
        with tempfile.TemporaryFile() as output:
            outcome = self._wait(command, limit, output, {**os.environ, "TRAINYARD_REQUIRE_GPU": "1", **(environment or {})})
            step["seconds"] = round(time.monotonic() - begin, 1)
            step.update(sampler.stop())
            text = self._keep(step, output, outcome)
        if read and (outcome == PASSED or reports_failures):
            found = self._read(step, read, text)
            outcome = found if outcome in (PASSED, "failed: exit 1") and found != PASSED else outcome
        if outcome != PASSED and not self.dead:
            found = self.device.alive()
            if found:
                self.dead = f"the device died in {name}: {found}"
                outcome += f"; the device died: {found}"
        return self._end(step, outcome)

    def passed(self, name):
        return any(step["name"] == name and step["outcome"] == PASSED for step in self.results["steps"])

    def failed(self):
        return [step["name"] for step in self.results["steps"] if step["outcome"].startswith(("failed", "skipped"))]

    def _end(self, step, outcome):
        step.pop("began", None)
        step["outcome"] = outcome
        self.results["steps"].append(step)
        self.save()
        seconds = f" ({step['seconds']} s)" if "seconds" in step else ""
        say(f"{step['name']}: {outcome}{seconds} {step.get('summary', '')}".rstrip())
        return step

    def _wait(self, command, limit, output, environment):
        """Starts the command, waits for its end, and says how it ended. Output goes to a file: a descendant that holds a
        pipe open keeps nobody waiting."""
        known = processes.children()
        try:
            process = processes.start(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                      env=environment, cwd=self.out, start_new_session=True)
        except OSError as error:
            return f"failed: {error.filename or command[0]}: {error.strerror}"
        end = time.monotonic() + limit
        outcome = ""
        while not outcome:
            try:
                code = process.wait(timeout=max(0.01, min(0.2, end - time.monotonic())))
                outcome = PASSED if code == 0 else f"failed: {signal.Signals(-code).name}" if code < 0 else f"failed: exit {code}"
            except subprocess.TimeoutExpired:
                if self.dead:
                    outcome = f"failed: {self.dead}"
                elif time.monotonic() >= end:
                    outcome = f"failed: not done in {limit:.0f} s"
                elif os.fstat(output.fileno()).st_size > LONGEST_OUTPUT:
                    outcome = f"failed: wrote more than {LONGEST_OUTPUT >> 20} MiB"
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            outcome += ", and cannot be killed"
        processes.end_orphans(known | {process.pid})  # What it started, too: the next step wants the device alone.
        return outcome

    def _keep(self, step, output, outcome):
        size = output.seek(0, os.SEEK_END)
        output.seek(0)
        kept = output.read(KEPT_HEAD)
        if size > KEPT_HEAD + KEPT_TAIL:
            kept += f"\n[... {size - KEPT_HEAD - KEPT_TAIL} bytes ...]\n".encode()
            output.seek(size - KEPT_TAIL)
        kept += output.read()
        with open(self.out / "check.log", "ab") as log:
            log.write(f"== {step['name']}: {step['command']}\n".encode() + kept +
                      f"\n== {outcome}, {step['seconds']} s\n\n".encode())
        return kept.decode(errors="replace")

    def _read(self, step, read, text):
        try:
            found = read(text)
        except (Unreadable, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            return f"failed: its output cannot be read: {error or type(error).__name__}"
        failed = found.pop("failed", "")
        step.update(found)
        return f"failed: {failed}" if failed else PASSED


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def set_aside(directory):
    """Numbers the results of an earlier check, results.json and check.log: results.1.json, check.1.log."""
    number = 1
    while any((directory / f"{name}.{number}.{end}").exists() for name, end in RESULTS):
        number += 1
    for name, end in RESULTS:
        if (directory / f"{name}.{end}").exists():
            os.replace(directory / f"{name}.{end}", directory / f"{name}.{number}.{end}")


def say(line):
    """To whoever watches. Results are in the files: that nobody watches any more ends nothing."""
    try:
        print(line, flush=True)
    except OSError:
        pass
