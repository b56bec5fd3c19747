"""Runs the steps of a check, so that no step costs more than its share of the time.

Whatever a step does (hangs, prints rubbish, dies, floods the log), the next one runs, and what is
known is in results.json: it is written anew when a step begins and when it ends, whole or not at
all. Only where libraries are missing, the driver has lost the device, or a signal has ended the
check, is the rest left out, by name. What an earlier check left in the directory keeps its own
names.
"""
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import typing

import causes
import processes

LONGEST_OUTPUT = 32 << 20  # Bytes: a step that writes more is ended.
KEPT_HEAD, KEPT_TAIL = 50_000, 200_000  # Bytes of a step's output that the log keeps.
LONGEST_LOG = 15 << 20  # Bytes: what may come back from a machine, though it is not packed.
SHORTEST_STEP = 3  # Seconds: with less left a step is not begun.
PASSED, UNREADABLE = "passed", "failed: its output cannot be read"
RESULTS = (("results", "json"), ("check", "log"), ("summary", "txt"))


class Unreadable(Exception):
    """A step's output is not what its reader wants."""


@dataclasses.dataclass
class Step:
    """A program that runs, `limit` seconds at most.

    `read` takes the output as text and returns a dict for the results; a dict with a "failed" is a
    failure, and so is what it raises. It is called for a step that ended by itself with exit status
    0. With `reports_failures` it is called however the step ended, which stays a failure.
    """
    name: str
    command: list
    limit: float
    read: typing.Callable = None
    environment: dict = dataclasses.field(default_factory=dict)
    reports_failures: bool = False
    checked: list = None  # The command that a memory checker runs where the step has failed.


class Running:
    """A step whose process has been started, and its entry in the results."""

    def __init__(self, step, entry, limit, directory):
        self.step, self.entry, self.limit = step, entry, limit
        self.outcome = ""
        self.output = tempfile.TemporaryFile()
        self.begin = time.monotonic()
        self.process = None
        try:
            # Output goes to a file: a descendant that holds a pipe open keeps nobody waiting.
            self.process = processes.start(
                [str(word) for word in step.command], stdin=subprocess.DEVNULL, stdout=self.output,
                stderr=subprocess.STDOUT, cwd=directory, start_new_session=True,
                env={**os.environ, "TRAINYARD_REQUIRE_GPU": "1", **step.environment})
        except OSError as error:
            self._end(f"failed: {error.filename or step.command[0]}: {error.strerror}")

    def look(self, dead):
        """Whether the step has ended; ends it if it must."""
        if self.outcome:
            return True
        code = self.process.poll()
        if code is not None:
            died = f"failed: {signal.Signals(-code).name}" if code < 0 else f"failed: exit {code}"
            self._end(died if code else PASSED)
        elif dead:
            self._end(f"failed: {dead}")
        elif time.monotonic() >= self.begin + self.limit:
            self._end(f"failed: not done in {self.limit:.3g} s")
        elif os.fstat(self.output.fileno()).st_size > LONGEST_OUTPUT:
            self._end(f"failed: wrote more than {LONGEST_OUTPUT >> 20} MiB")
        return bool(self.outcome)

    def _end(self, outcome):
        self.outcome = outcome
        self.entry["seconds"] = round(time.monotonic() - self.begin, 1)
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            self.process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self.outcome += ", and cannot be killed"

    def text(self):
        """All that the step has printed; to be asked once."""
        with self.output as output:
            output.seek(0)
            return output.read(LONGEST_OUTPUT).decode(errors="replace")


class Runner:
    """`device` has sample() -> object with stop() -> dict, lost() and probe() -> str, "" if well.

    `scale` multiplies each limit: a rehearsal has less time than a device.
    """

    def __init__(self, out, seconds, device, command, root="", scale=1.0):
        self.out = pathlib.Path(out)
        self.root = str(root)
        self.device = device
        self.scale = scale
        self.begin = time.monotonic()
        self.deadline = self.share_end = self.begin + seconds * scale
        self.dead = ""  # Why the rest is skipped.
        self.probe_failed = False
        set_aside(self.out)
        processes.adopt_orphans()
        self.results = {"date": now(), "command": command, "machine": {}, "steps": []}
        self.save()

    def interrupt(self, number, _frame):
        """A handler of signals: the step that runs ends now, and the rest is left out."""
        self.dead = self.dead or f"interrupted by {signal.Signals(number).name}"

    def seconds(self):
        """Since the check began."""
        return time.monotonic() - self.begin

    def left(self):
        """Seconds until the end of the share, and of the check."""
        return min(self.deadline, self.share_end) - time.monotonic()

    @contextlib.contextmanager
    def share(self, seconds):
        """What runs inside has so many seconds in all."""
        self.share_end = time.monotonic() + seconds * self.scale
        try:
            yield
        finally:
            self.share_end = self.deadline

    def save(self):
        temporary = self.out / ".results.json"
        temporary.write_text(json.dumps(self.results, indent=1) + "\n")
        os.replace(temporary, self.out / "results.json")

    def leave_out(self, name, reason):
        """Notes a step that cannot run: an open row, not a failure."""
        outcome = f"skipped: {self.dead}" if self.dead else f"open: {reason}"
        return self._end({"name": name}, outcome)

    def run(self, step):
        return self.together([step])[0]

    def together(self, steps):
        """Runs steps side by side, and returns their entries in the results."""
        known = processes.children()
        entries, running = [], []
        left = self.left()
        for step in steps:
            command = " ".join(str(word) for word in step.command)
            entry = {"name": step.name, "command": command.replace(self.root + "/", "")}
            entries.append(entry)
            limit = min(step.limit * self.scale, left)
            if self.dead:
                self._end(entry, f"skipped: {self.dead}")
            elif limit < SHORTEST_STEP * self.scale:
                self._end(entry, "skipped: no time left")
            else:
                entry.update(outcome="running", began=now())
                running.append(Running(step, entry, limit, self.out))
        if not running:
            return entries
        self.results["steps"] += [each.entry for each in running]
        self.save()
        sampler = self.device.sample()
        while not all([each.look(self.dead) for each in running]):
            time.sleep(0.02)
        # What the steps started, too: the next one wants the device alone.
        processes.end_orphans(known | {each.process.pid for each in running if each.process})
        sampled = sampler.stop()
        for each in running:
            self.results["steps"].remove(each.entry)
            each.entry.update(sampled)
            self._finish(each)
        self._look_at_the_device(running)
        return entries

    def passed(self, name):
        return any(step["name"] == name and step["outcome"] == PASSED
                   for step in self.results["steps"])

    def failed(self):
        return [step["name"] for step in self.results["steps"]
                if step["outcome"].startswith(("failed", "skipped"))]

    def _finish(self, running):
        step, outcome, text = running.step, running.outcome, running.text()
        self._log(running, text)
        if step.read and (outcome == PASSED or step.reports_failures):
            found = self._read(running.entry, step.read, text)
            says_more = outcome == "failed: exit 1" and not found.startswith(UNREADABLE)
            if found != PASSED and (outcome == PASSED or says_more):
                outcome = found
        if outcome != PASSED:
            running.entry.update(causes.of(outcome, text))
        self._end(running.entry, outcome)

    def _look_at_the_device(self, running):
        """After a failure: a driver that has lost the device ends the check. A probe that fails is
        noted: perhaps it is the probe that is wrong, and what can still run says more."""
        failed = [each.entry for each in running if each.entry["outcome"] != PASSED]
        if not failed or self.dead:
            return
        lost = self.device.lost()
        if lost:
            self.dead = f"the device died in {failed[0]['name']}: {lost}"
            failed[0]["outcome"] += f"; the device died: {lost}"
            failed[0]["kind"] = causes.LOST
        elif not self.probe_failed:
            wrong = self.device.probe()
            if wrong:
                self.probe_failed = True
                failed[0]["outcome"] += f"; a tiny kernel then fails: {wrong}"
        self.save()

    def _end(self, entry, outcome):
        entry.pop("began", None)
        entry["outcome"] = outcome
        self.results["steps"].append(entry)
        self.save()
        seconds = f" ({entry['seconds']} s)" if "seconds" in entry else ""
        say(f"{entry['name']}: {outcome}{seconds} {entry.get('summary', '')}".rstrip())
        return entry

    def _log(self, running, text):
        entry = running.entry
        if len(text) > KEPT_HEAD + KEPT_TAIL:
            left_out = len(text) - KEPT_HEAD - KEPT_TAIL
            text = f"{text[:KEPT_HEAD]}\n[... {left_out} characters ...]\n{text[-KEPT_TAIL:]}"
        told = (f"== {entry['name']}: {entry['command']}\n{text}\n"
                f"== {running.outcome}, {entry['seconds']} s\n\n").encode()
        with open(self.out / "check.log", "ab") as log:
            room = LONGEST_LOG - log.tell()
            log.write(told if len(told) <= room else told[len(told) - room:])

    def _read(self, entry, read, text):
        try:
            found = read(text)
        except (Unreadable, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            return f"{UNREADABLE}: {error or type(error).__name__}"
        failed = found.pop("failed", "")
        entry.update(found)
        return f"failed: {failed}" if failed else PASSED


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def set_aside(directory):
    """Numbers the files of an earlier check: results.json becomes results.1.json."""
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
