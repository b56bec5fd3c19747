"""Proves that no figure is read from a run that is not correct, and that what is not understood is an error."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/gpu_check"))

import readers  # noqa: E402
from runner import Unreadable  # noqa: E402

STEP = """step 1: loss 10.900000, gradient norm 2.500000
step 2: loss 10.800000, gradient norm 2.400000
gpt2-124m bf16, 2 threads: step median 36.50 ms of 20 (36.10 to 38.00), 448876 tokens/s
matrix rate 788000.1 GFLOP/s, memory rate 4210.5 GB/s, model 13100.55 GFLOP a step: MFU 45.5%
memory: 9.0 GiB (parameters 1 GiB); touched 9 GiB more than before, resident 1 MiB above the plan
op                            calls        ms   share   GFLOP/s     GB/s  of bound
matmul                           24    10.000   28.2%    640000      0.2       43%
outside of ops                           1.792    4.0%
"""
GOLDEN = [[10.91, 2.55], [10.79, 2.41]]


class StepTime(unittest.TestCase):
    def test_a_good_run(self):
        found = readers.step_time(GOLDEN)(STEP)
        self.assertNotIn("failed", found)
        self.assertEqual((found["tokens_per_second"], found["median_ms"], found["mfu_of_measured_rate_percent"]), (448876, 36.5, 45.5))
        self.assertEqual(found["share_by_op_percent"], {"matmul": 28.2})
        self.assertEqual(found["curve"], [[10.9, 2.5], [10.8, 2.4]])

    def assert_no_speed(self, text, why, golden=None):
        found = readers.step_time(golden)(text)
        self.assertIn(why, found["failed"])
        self.assertNotIn("tokens_per_second", found)
        self.assertNotIn("summary", found)

    def test_no_speed_without_finite_losses_and_norms(self):
        for number in ("nan", "inf", "-nan"):
            self.assert_no_speed(STEP.replace("10.800000", number), "step 2: loss ")
            self.assert_no_speed(STEP.replace("2.500000", number), "step 1: loss ")

    def test_no_speed_away_from_the_cpus_curve(self):
        self.assert_no_speed(STEP, "step 2: loss 10.8, a CPU has 10.75", [[10.91, 2.55], [10.75, 2.41]])
        self.assert_no_speed(STEP, "step 1: gradient norm 2.5, a CPU has 3.1", [[10.91, 3.1]])
        self.assert_no_speed(STEP, "2 steps, wanted 3", GOLDEN + [[1, 1]])

    def test_no_speed_of_attention_that_was_not_cudnns(self):
        line = "2026-11-23T07:00:00Z warning cudnn_attention_refused direction=backward reason=\"no engine\"\n"
        self.assert_no_speed(line + STEP, "no engine")
        self.assert_no_speed("warning attention_without_cudnn head_dim=32\n" + STEP, "head_dim=32")
        self.assertNotIn("failed", readers.step_time(cudnn=False)(line + STEP))

    def test_what_is_cut_off_or_rubbish(self):
        for text in ("", "\x00\xff", STEP.split("matrix rate")[0], STEP.replace("step 1:", "step 2:"), STEP.replace("memory:", "m:"),
                     STEP[STEP.index("gpt2"):]):
            with self.assertRaises(Unreadable):
                readers.step_time()(text)


class Others(unittest.TestCase):
    def test_tests(self):
        self.assertEqual(readers.tests("[  PASSED  ] 12 tests.")["passed"], 12)
        found = readers.tests("[  PASSED  ] 11 tests.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A.b, where x = 1\n")
        self.assertIn("A.b", found["failed_tests"])
        self.assertTrue(found["failed"])
        for text in ("", "Segmentation fault", "[  PASSED  ] 0 tests."):
            with self.assertRaises(Unreadable):
                readers.tests(text)

    def test_benchmarks(self):
        row = {"name": "Add", "real_time": 1.5, "time_unit": "us", "GB/s": 4000.0, "iterations": 3}
        text = "2026 noise\n" + json.dumps({"context": {}, "benchmarks": [row]}, indent=1) + "\nmore noise"
        self.assertEqual(readers.benchmarks(text)["benchmarks"], [{"name": "Add", "real_time": 1.5, "time_unit": "us", "GB/s": 4000.0}])
        for bad in ({**row, "error_occurred": True}, {**row, "real_time": float("nan")}):
            self.assertIn("Add", readers.benchmarks(json.dumps({"benchmarks": [bad]}, indent=1))["failed"])
        for text in ("", text[:60], "{\n}", "{\n\"benchmarks\": []}"):
            with self.assertRaises((Unreadable, ValueError, KeyError)):
                readers.benchmarks(text)

    def test_no_speed_where_none_can_be_trusted(self):
        found = readers.step_time(GOLDEN, "no speed")(STEP)
        self.assertEqual(found["failed"], "no speed")
        self.assertNotIn("tokens_per_second", found)

    def test_trainer_losses(self):
        self.assertEqual(readers.trainer_losses(2)("step 1 loss 5.25\nstep 2 loss 5.00")["losses"], [5.25, 5.0])
        with self.assertRaises(Unreadable):
            readers.trainer_losses(2)("step 1 loss 5.25\nstep 2 loss nan")


if __name__ == "__main__":
    unittest.main()
