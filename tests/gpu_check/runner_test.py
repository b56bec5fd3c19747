"""Proves that a step costs nobody but itself, whatever it does, and that results.json always tells what is known."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/gpu_check"), str(ROOT / "tests/gpu_check")]

import device  # noqa: E402
import runner  # noqa: E402
from fake_device import FakeDevice  # noqa: E402


class Faked(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)
        self.fake = FakeDevice(self.directory / "fake")
        self.out = self.directory / "out"
        self.out.mkdir()
        for patch in (mock.patch.dict(os.environ, self.fake.environment()), mock.patch.object(device, "WANTS_AN_ANSWER_IN", 1),
                      mock.patch.object(runner, "SHORTEST_STEP", 0.1), mock.patch("builtins.print")):
            patch.start()
            self.addCleanup(patch.stop)


class Steps(Faked):
    def setUp(self):
        super().setUp()
        self.runner = self.make()

    def make(self, seconds=60):
        return runner.Runner(self.out, seconds, device.Device([self.fake.directory / "probe"]), "the command")

    def run_one(self, *fields, **more):
        return self.runner.run(runner.Step(*fields, **more))

    def results(self):
        return json.loads((self.out / "results.json").read_text())

    def outcome(self, python, limit=20, read=None):
        """Of a step; a good one after it must pass."""
        step = self.run_one("tested", [self.fake.program("tested", python)], limit, read)
        self.assertEqual(self.run_one("next", ["true"], 20)["outcome"], "passed")
        self.assertEqual([s["name"] for s in self.results()["steps"]], ["tested", "next"])
        self.assertEqual(self.results()["steps"][0]["outcome"], step["outcome"])
        return step["outcome"]

    def test_one_that_passes_has_what_was_read_and_what_the_device_did(self):
        step = self.run_one("good", [self.fake.program("good", "import time; time.sleep(0.5); print('rate 5')")], 20,
                               lambda text: {"rate": float(text.split()[1])})
        self.assertEqual((step["outcome"], step["rate"]), ("passed", 5.0))
        self.assertEqual(step["device"]["sm_mhz"], [1980, 1980, 1980])
        self.assertNotIn("watts", step["device"], "a reading that the device has not")
        self.assertIn(b"rate 5", (self.out / "check.log").read_bytes())

    def test_one_that_hangs_costs_its_limit_and_leaves_nobody(self):
        begin = time.monotonic()
        child = self.directory / "child"
        outcome = self.outcome(f"""
import pathlib, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path({str(child)!r}).write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
time.sleep(1000)""", limit=1)
        self.assertEqual(outcome, "failed: not done in 1 s")
        self.assertLess(time.monotonic() - begin, 15)
        self.assert_gone(int(child.read_text()))

    def test_one_whose_child_holds_its_output_keeps_nobody_waiting(self):
        begin = time.monotonic()
        child = self.directory / "child"
        self.assertEqual(self.outcome(f"""
import pathlib, subprocess
pathlib.Path({str(child)!r}).write_text(str(subprocess.Popen(["sleep", "1000"]).pid))"""), "passed")
        self.assertLess(time.monotonic() - begin, 15)
        self.assert_gone(int(child.read_text()))

    def test_what_a_child_started_in_a_session_of_its_own_ends_with_the_step(self):
        for end in ("", "time.sleep(1000)"):
            child = self.directory / "child"
            self.runner = self.make()
            outcome = self.outcome(f"""
import pathlib, subprocess, time
starts = "import pathlib, subprocess; pathlib.Path({str(child)!r}).write_text(" \\
    "str(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid))"
subprocess.run(["{sys.executable}", "-c", starts], start_new_session=True, check=True)
{end}""", limit=3)
            self.assertEqual(outcome, "failed: not done in 3 s" if end else "passed")
            self.assert_gone(int(child.read_text()))

    def assert_gone(self, pid):
        for _ in range(100):
            try:
                if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    return
            except FileNotFoundError:
                return
            time.sleep(0.05)
        self.fail(f"process {pid} lives on")

    def test_one_that_prints_rubbish_fails_where_it_is_read(self):
        rubbish = "import os, sys; os.write(1, bytes(range(256)) * 50)"
        self.assertRegex(self.outcome(rubbish, read=json.loads), "^failed: its output cannot be read: ")

    def test_half_a_json_fails(self):
        self.assertRegex(self.outcome("print('{\"benchmarks\": [{\"name\": ')", read=json.loads),
                         "^failed: its output cannot be read: ")

    def test_a_json_of_another_shape_fails(self):
        self.assertRegex(self.outcome("print('[1, 2]')", read=lambda text: {"n": json.loads(text)["benchmarks"]}),
                         "^failed: its output cannot be read: ")

    def test_what_the_reader_refuses_fails(self):
        self.assertEqual(self.outcome("print('nan')", read=lambda text: {"loss": text.strip(), "failed": "loss nan"}),
                         "failed: loss nan")
        self.assertEqual(self.results()["steps"][0]["loss"], "nan")

    def test_one_that_dies_is_told_with_its_signal(self):
        self.assertEqual(self.outcome("import os; os.kill(os.getpid(), 11)"), "failed: SIGSEGV")
        self.assertEqual(self.runner.failed(), ["tested"])

    def test_exit_status_counts_though_the_output_is_good(self):
        self.assertEqual(self.outcome("import sys; print('{}'); sys.exit(3)", read=json.loads), "failed: exit 3")

    def test_one_that_reports_its_failures_is_read_and_stays_a_failure(self):
        program = self.fake.program("reports", "print('rate 5'); raise SystemExit(1)")
        for read, outcome in ((lambda text: {"rate": float(text.split()[1])}, "failed: exit 1"),
                              (lambda text: {"rate": float(text.split()[1]), "failed": "slow"}, "failed: slow")):
            step = self.run_one("reports", [program], 20, read, reports_failures=True)
            self.assertEqual((step["outcome"], step["rate"]), (outcome, 5.0))
        hangs = self.fake.program("hangs", "import time; print('rate 5', flush=True); time.sleep(100)")
        step = self.run_one("hangs", [hangs], 1, lambda text: {"rate": float(text.split()[1]), "failed": "at 5"}, reports_failures=True)
        self.assertEqual((step["outcome"], step["rate"]), ("failed: not done in 1 s", 5.0))

    def test_a_flood_is_ended_and_the_log_keeps_both_ends(self):
        with mock.patch.object(runner, "LONGEST_OUTPUT", 3 << 20):
            outcome = self.outcome("print('begin')\nwhile True: print('x' * 1000)", read=json.loads)
        self.assertEqual(outcome, "failed: wrote more than 3 MiB")
        log = (self.out / "check.log").read_bytes()
        self.assertIn(b"begin", log)
        self.assertLess(len(log), 1 << 20)

    def test_a_program_that_is_not_there_fails_alone(self):
        step = self.run_one("missing", [self.directory / "no-such"], 5)
        self.assertRegex(step["outcome"], "^failed: .*no-such: No such file or directory$")
        self.assertEqual(self.run_one("next", ["true"], 20)["outcome"], "passed")

    def test_after_the_devices_death_the_rest_is_named_and_costs_nothing(self):
        for mood, found in (("gone", "Unknown Error"), ("hangs", "nvidia-smi gives no answer in 1 s")):
            with self.subTest(mood):
                self.runner = self.make()
                self.fake.is_now("well")
                kill = f"import pathlib, sys; pathlib.Path({str(self.fake.directory / 'mood')!r}).write_text({mood!r}); sys.exit(1)"
                outcome = self.run_one("deadly", [self.fake.program("deadly", kill)], 20)["outcome"]
                self.assertRegex(outcome, f"^failed: exit 1; the device died: .*{found}$")
                begin = time.monotonic()
                for name in ("a", "b", "c"):
                    self.assertRegex(self.run_one(name, ["true"], 20)["outcome"], "^skipped: the device died in deadly: ")
                self.assertLess(time.monotonic() - begin, 1)
                self.assertEqual(self.runner.failed(), ["deadly", "a", "b", "c"])

    def test_a_probe_that_fails_is_noted_once_and_skips_nothing(self):
        self.fake.program("probe", "import sys; print('CUDA error 46: busy'); sys.exit(1)")
        self.assertEqual(self.run_one("first", ["false"], 20)["outcome"],
                         "failed: exit 1; a tiny kernel then fails: probe: CUDA error 46: busy")
        self.assertEqual(self.run_one("second", ["false"], 20)["outcome"], "failed: exit 1")
        self.assertEqual(self.run_one("third", ["true"], 20)["outcome"], "passed")

    def test_steps_side_by_side_end_by_themselves_each(self):
        begin = time.monotonic()
        steps = [runner.Step("long", ["sleep", "1"], 20), runner.Step("short", ["true"], 20),
                 runner.Step("hangs", ["sleep", "1000"], 1.5), runner.Step("bad", ["false"], 20)]
        outcomes = [entry["outcome"] for entry in self.runner.together(steps)]
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(outcomes, ["passed", "passed", "failed: not done in 1.5 s",
                                    "failed: exit 1"])
        self.assertEqual([step["name"] for step in self.results()["steps"]],
                         ["long", "short", "hangs", "bad"])
        self.assertLess(self.results()["steps"][1]["seconds"], 1)

    def test_a_share_ends_its_steps_and_no_later_one(self):
        begin = time.monotonic()
        with self.runner.share(2):
            self.run_one("beyond", ["sleep", "1000"], 60)
            skipped = self.run_one("after", ["true"], 60)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(skipped["outcome"], "skipped: no time left")
        self.assertEqual(self.run_one("next", ["true"], 60)["outcome"], "passed")

    def test_the_log_stays_small_enough_to_come_back(self):
        floods = self.fake.program("floods", "for _ in range(5000): print('x' * 99)")
        with mock.patch.object(runner, "LONGEST_LOG", 600_000):
            for number in range(5):
                self.run_one(f"flood {number}", [floods], 20)
            self.run_one("last", ["echo", "the end"], 20)
        self.assertLessEqual((self.out / "check.log").stat().st_size, 600_000)

    def test_when_the_time_is_over_the_rest_is_named(self):
        self.runner = self.make(seconds=1.5)
        self.assertRegex(self.run_one("long", ["sleep", "1000"], 60)["outcome"], "^failed: not done in ")
        self.assertEqual(self.run_one("next", ["true"], 20)["outcome"], "skipped: no time left")

    def test_killed_itself_it_leaves_what_it_had(self):
        child = self.directory / "child"
        second = self.fake.program("second", f"""
import os, pathlib, time
pathlib.Path({str(child)!r}).write_text(str(os.getpid()))
time.sleep(1000)""")
        program = f"""
import sys; sys.path[:0] = {sys.path[:2]!r}
import device, runner
r = runner.Runner({str(self.out)!r}, 60, device.Device(['true']), 'the command')
r.run(runner.Step('first', ['true'], 20))
r.run(runner.Step('second', [{second!r}], 60))"""
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
        while not child.exists() or not child.read_text():
            time.sleep(0.02)
        process.kill()
        process.wait()
        self.assert_gone(int(child.read_text()))
        self.assertEqual([(s["name"], s["outcome"]) for s in self.results()["steps"]],
                         [("first", "passed"), ("second", "running")])


class Device(Faked):
    def test_facts(self):
        facts, wrong = device.Device(["true"]).facts()
        self.assertEqual((facts["name"], wrong), ("Fake H200", ""))

    def test_facts_that_do_not_come_have_a_reason(self):
        for mood, reason in (("hangs", "nvidia-smi gives no answer in 1 s"), ("gone", "Unable to determine the device handle")):
            self.fake.is_now(mood)
            facts, wrong = device.Device(["true"]).facts()
            self.assertEqual(facts, {})
            self.assertIn(reason, wrong)
        self.fake.program("nvidia-smi", "print('half, an')")
        self.assertIn("wanted 9 values", device.Device(["true"]).facts()[1])

    def test_without_nvidia_smi_it_is_not_alive(self):
        with mock.patch.dict(os.environ, PATH=str(self.directory)):
            self.assertIn("nvidia-smi: No such file", device.Device(["true"]).lost())

    def test_a_summary_passes_over_what_is_cut_off(self):
        found = device.summary("1980, 3201, 300.5, 40\n1800, 3201, [N/A], 50\n19")
        self.assertEqual(found["device"]["sm_mhz"], [1800, 1890, 1980])
        self.assertEqual(found["device"]["watts"], [300.5, 300.5, 300.5])


if __name__ == "__main__":
    unittest.main()
