"""Proves what scripts/quickstart.sh promises, in a copy of what it needs and with the build that exists: it ends with a
sample of text, a second run reuses the build and trains anew, Ctrl-C leaves nothing running, and --clean removes what it
made and nothing else. Catches a service that outlives the script, and a --clean that takes the user's own state along."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
PROGRAMS = ["trainyard", "trainyard-controller", "trainyard-worker", "trainyard-trainer"]
TOKENS = 300  # That the script asks `generate` for.


def checkout(case):
    """A fresh directory with what the script reads of the repository."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard: quickstart #"))  # A path that must be quoted everywhere.
    case.addClassCleanup(shutil.rmtree, directory)
    for part in ("scripts", "recipes"):
        shutil.copytree(SOURCE / part, directory / part)
    return directory


def start(directory, *words, build=BIN.parent):
    # A session of its own, as a terminal gives: its process group is what Ctrl-C reaches. The script ends with this test.
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", directory / "scripts/quickstart.sh", *words],
        env={**os.environ, "TRAINYARD_BUILD": str(build)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def finish(directory, *words, **options):
    script = start(directory, *words, **options)
    output, _ = script.communicate()
    return script.returncode, output


def read_until(script, pattern):
    """The output up to the line that holds `pattern`."""
    lines = []
    for line in script.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return "".join(lines)
    raise AssertionError(f"no line with {pattern} in:\n{''.join(lines)}")


def processes():
    """(process id, start time) -> parent, of all that run."""
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # It ended meanwhile.
        fields = text[text.rindex(")") + 2:].split()
        if fields[0] != "Z":
            found[int(stat.parent.name), int(fields[19])] = int(fields[1])
    return found


def below(ancestor):
    """The processes that `ancestor` started, and they."""
    parents, inside, grew = processes(), {ancestor}, True
    while grew:
        new = {pid for (pid, _), parent in parents.items() if parent in inside} - inside
        inside |= new
        grew = bool(new)
    return {key for key in parents if key[0] in inside and key[0] != ancestor}


def tree(directory):
    """Every path below a directory, with the contents of files."""
    return {path.relative_to(directory): path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}


def ports(output):
    return [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", re.search(r"Serving at .*", output)[0])]


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = checkout(cls)
        cls.code, cls.output = finish(cls.directory, "--short")

    def runs(self):
        return sorted(path for path in (self.directory / ".trainyard/quickstart").iterdir() if path.is_dir())

    def expect_nothing_listens(self, output):
        for port in ports(output):
            with socket.socket() as client:
                self.assertNotEqual(client.connect_ex(("127.0.0.1", port)), 0, f"port {port} is still served")

    def test_a_run_ends_with_a_sample_of_text_of_the_asked_length(self):
        self.assertEqual(self.code, 0, self.output)
        self.assertIn("SUCCEEDED", self.output)
        self.expect_nothing_listens(self.output)
        prompt = re.search(r'The model continues "(.*)":', self.output)[1]
        checkpoint = re.search(r"^checkpoint  (\S+)", self.output, re.M)[1]
        sample = subprocess.run(
            [BIN / "trainyard", "generate", self.directory / checkpoint, "--prompt", prompt, "--tokens", str(TOKENS),
             "--temperature", "0.7", "--seed", "1"], stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(len(sample), len(prompt) + TOKENS + len("\n"))
        self.assertTrue(sample[len(prompt):].strip())
        self.assertIn(sample.decode("utf-8"), self.output)  # Raises where it is not UTF-8.

    def test_ending_the_script_alone_ends_all_that_it_started(self):
        """As `timeout` and batch systems do: the signal goes to the script, not to its children."""
        script = start(self.directory, "--short")
        output = read_until(script, r"^step \d+/")
        started = below(script.pid)
        script.terminate()
        output += script.communicate(timeout=60)[0]
        self.assertEqual(script.returncode, 143, output)
        self.assertEqual(started & processes().keys(), set())
        self.expect_nothing_listens(output)

    def test_a_second_run_reuses_the_build_and_trains_anew_until_ctrl_c_leaves_nothing_running(self):
        first, = self.runs()
        before = tree(first)
        built = {name: (BIN / name).stat() for name in PROGRAMS}
        script = start(self.directory, "--short")
        output = read_until(script, r"^step \d+/")
        started = below(script.pid)
        self.assertGreaterEqual(len(started), 6)  # The service, its controller, two workers, two trainers.
        os.killpg(script.pid, signal.SIGINT)
        output += script.communicate()[0]
        self.assertEqual(script.returncode, 130, output)
        self.assertEqual(started & processes().keys(), set())
        self.expect_nothing_listens(output)

        self.assertIn("bring the build in", output)
        for name, stat in built.items():
            self.assertEqual((BIN / name).stat().st_mtime_ns, stat.st_mtime_ns, f"{name} was built again")
        self.assertEqual(tree(first), before)
        second, = set(self.runs()) - {first}
        listed = subprocess.run([BIN / "trainyard", "checkpoint", "list", second / "checkpoints", "-o", "jsonl"],
                                stdout=subprocess.PIPE, text=True, check=True).stdout
        # It stopped in order, with a checkpoint of its own first steps.
        steps = [int(step) for step in re.findall(r'"step":(\d+),"complete":true', listed)]
        self.assertTrue(steps and max(steps) < 60, listed)


class Words(unittest.TestCase):
    def setUp(self):
        self.directory = checkout(type(self))
        self.before = tree(self.directory)

    def test_help_is_the_comment_at_its_top_and_another_word_is_refused(self):
        code, output = finish(self.directory, "--help")
        self.assertEqual(code, 0)
        self.assertIn("--clean    removes", output.splitlines()[-1])
        code, output = finish(self.directory, "--claen")
        self.assertEqual((code, output), (2, "quickstart: wanted --short, --clean, --help or nothing, found '--claen'\n"))
        self.assertEqual(tree(self.directory), self.before)

    def make(self, *files):
        for name in files:
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)

    def test_clean_removes_what_it_made(self):
        self.make(".trainyard/quickstart/corpus.txt", ".trainyard/quickstart/20260101-000000/up.log",
                  "build/configure.log", "build/bin/trainyard")
        code, output = finish(self.directory, "--clean", build="build")
        self.assertEqual(code, 0, output)
        self.assertEqual(tree(self.directory), self.before)

    def test_clean_leaves_what_the_user_made(self):
        self.make(".trainyard/controller/jobs.sqlite", "runs/tiny/owner.json", "elsewhere/notes.txt")
        before = tree(self.directory)
        code, output = finish(self.directory, "--clean", build=self.directory / "elsewhere")
        self.assertEqual(code, 0, output)
        self.assertEqual(tree(self.directory), before)
        self.assertNotIn("elsewhere", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
