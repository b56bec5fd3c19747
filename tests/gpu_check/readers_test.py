"""Proves that no figure is read from a run that is not correct, and that what is not understood is an error."""
import json
import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/gpu_check"))

import readers  # noqa: E402
from runner import Unreadable  # noqa: E402

STEP = """step 1: loss 10.900000, gradient norm 2.500000
step 2: loss 10.800000, gradient norm 2.400000
gpt2-124m bf16, 2 threads: step median 36.50 ms of 20 (36.10 to 38.00), 448876 tokens/s
model 13100.55 GFLOP a step
memory: 9.0 GiB (parameters 1 GiB); touched 9 GiB more than before, resident 1 MiB above the plan
op                            calls        ms   share   GFLOP/s     GB/s  of bound
matmul                           24    10.000   28.2%    640000      0.2       43%
outside of ops                           1.792    4.0%
"""
GOLDEN = [[10.905, 2.55], [10.795, 2.41]]


class StepTime(unittest.TestCase):
    def test_a_good_run(self):
        found = readers.step_time(GOLDEN, ceiling=lambda: 7.9e14)(STEP)
        self.assertNotIn("failed", found)
        self.assertEqual((found["tokens_per_second"], found["median_ms"]), (448876, 36.5))
        self.assertAlmostEqual(found["mfu_of_ceiling_percent"], 45.43, 2)
        self.assertEqual(found["share_by_op_percent"], {"matmul": 28.2})
        self.assertEqual(found["curve"], [[10.9, 2.5], [10.8, 2.4]])

    def assert_no_speed(self, text, why, golden=None):
        found = readers.step_time(golden)(text)
        self.assertIn(why, found["failed"])
        self.assertNotIn("tokens_per_second", found)
        self.assertEqual(found["untrusted"]["tokens_per_second"], 448876)
        self.assertNotIn("summary", found)

    def test_no_speed_without_finite_losses_and_norms(self):
        for number in ("nan", "inf", "-nan"):
            self.assert_no_speed(STEP.replace("10.800000", number), "step 2: loss ")
            self.assert_no_speed(STEP.replace("2.500000", number), "step 1: loss ")

    def test_no_speed_away_from_the_cpus_curve(self):
        self.assert_no_speed(STEP, "step 2: loss 10.8, a CPU has 10.789", [[10.905, 2.55], [10.789, 2.41]])
        self.assert_no_speed(STEP, "step 1: gradient norm 2.5, a CPU has 2.56", [[10.905, 2.56]])
        self.assert_no_speed(STEP, "2 steps, wanted 3", GOLDEN + [[1, 1]])

    def test_no_speed_of_attention_that_was_not_cudnns(self):
        line = "2026-11-23T07:00:00Z warning cudnn_attention_refused direction=backward reason=\"no engine\"\n"
        self.assert_no_speed(line + STEP, "no engine")
        self.assert_no_speed("warning attention_without_cudnn head_dim=32\n" + STEP, "head_dim=32")

    def test_no_speed_of_products_in_8_bits_that_were_not_cublaslts(self):
        self.assert_no_speed("warning scaled_matmul_without_cublaslt m=8 reason=\"f64\"\n" + STEP, "m=8")

    def test_what_is_cut_off_or_rubbish(self):
        for text in ("", "\x00\xff", STEP.split("model ")[0], STEP.replace("step 1:", "step 2:"), STEP.replace("memory:", "m:"),
                     STEP[STEP.index("gpt2"):]):
            with self.assertRaises(Unreadable):
                readers.step_time()(text)


PREDICTION = """op                                calls        ms   share
matmul                               24     8.000   20.0%
attention                            12     3.000   10.0%
predicted products: 15.24 ms
predicted head and loss: 17.50 ms
predicted memory-bound: 2.62 ms
predicted step: 30.00 ms, 546133 tokens/s, MFU 44.0% of 989 TFLOP/s
memory: 7.17 GiB (activations 4.70 GiB)
"""


class Prediction(unittest.TestCase):
    def test_is_read_whole(self):
        found = readers.prediction(PREDICTION)["predicted"]
        self.assertEqual((found["step_ms"], found["tokens_per_second"], found["mfu_percent"]), (30.0, 546133, 44.0))
        self.assertEqual(found["parts_ms"], {"products": 15.24, "head and loss": 17.5, "memory-bound": 2.62})
        self.assertEqual(found["ops_ms"], {"matmul": 8.0, "attention": 3.0})
        for text in ("", PREDICTION.replace("predicted step", "step"), PREDICTION.replace("memory: ", "")):
            with self.assertRaises(Unreadable):
                readers.prediction(text)

    def test_is_what_a_step_is_compared_with(self):
        found = readers.step_time(GOLDEN, predicted=lambda: readers.prediction(PREDICTION)["predicted"])(STEP)
        self.assertEqual(found["predicted_ms"], 30.0)
        self.assertAlmostEqual(found["of_predicted"], 1.217, 3)
        # An op that did not run is a difference, too.
        self.assertEqual(found["ops_not_as_predicted_ms"], {"matmul": [10.0, 8.0], "attention": [0, 3.0]})

    def test_small_differences_want_no_reason(self):
        self.assertEqual(readers.differences({"a": 100.0, "b": 0.5}, {"a": 92.0, "b": 0.1}), {})
        self.assertEqual(readers.differences({"a": 100.0, "b": 50.0}, {"a": 90.0}), {"a": [100.0, 90.0], "b": [50.0, 0]})


class OnTheDevice(unittest.TestCase):
    def test_lockstep(self):
        text = """op                                apart         us  predicted  shapes
attention                        0.1000      60.86       50.11  [256, 256] to [256, 256]
clip                             0.0000       0.01       2.00  
lockstep: 57 ops agree
"""
        found = readers.lockstep(text)
        self.assertEqual(found["ops"][0], {"op": "attention", "apart": 0.1, "us": 60.86, "predicted_us": 50.11,
                                           "shapes": "[256, 256] to [256, 256]"})
        self.assertEqual(len(found["ops"]), 2)
        self.assertIn("57 ops, furthest attention", found["summary"])
        apart = readers.lockstep(text.replace("lockstep: 57 ops agree", "apart: attention of block 1: mixed bf16[2, 2] by 0.5"))
        self.assertEqual(len(apart["ops"]), 2, "what was measured is kept")
        self.assertEqual(apart["failed"], "1 ops, first attention of block 1: mixed bf16[2, 2] by 0.5")
        hung = readers.lockstep(text.replace("lockstep: 57 ops agree", "at adamw of block 0"))
        self.assertEqual(hung["failed"], "ended at adamw of block 0")
        self.assertEqual(readers.lockstep("warning attention_without_cudnn head_dim=64\n" + text)["failed"],
                         "attention_without_cudnn head_dim=64")
        ours = "warning attention_without_cudnn head_dim=64\n" + text
        self.assertNotIn("failed", readers.lockstep(ours, our_attention=True))
        self.assertIn("failed", readers.lockstep("cudnn_attention_refused\n" + text, our_attention=True))
        for wrong in ("", "lockstep: 57 ops agree"):
            with self.assertRaises(Unreadable):
                readers.lockstep(wrong)

    def test_products(self):
        text = "product bf16 to f32 M 8 N 8 K 8, a transposed: first 12.00 us, best 10.00 us, number 2 of 16\n"
        self.assertEqual(readers.products(text)["products"], [{"product": "bf16 to f32 M 8 N 8 K 8, a transposed", "first_us": 12.0,
                                                               "best_us": 10.0, "best": 2, "of": 16}])
        with self.assertRaises(Unreadable):
            readers.products("error: no CUDA device")

    def test_pytorch(self):
        run = {"version": "2.15", "seconds": [9, 9, 9, 9, 2, 1, 1], "losses": [5.5] * 7, "attention": "CUDNN_ATTENTION",
               "attention_ms": {"CUDNN_ATTENTION": 0.5}}
        found = readers.pytorch(1000)("a warning\n" + json.dumps(run))
        self.assertEqual(found["tokens_per_second"], 1000)
        self.assertIn("attention CUDNN_ATTENTION", found["summary"])
        for wrong in ({**run, "seconds": [1] * 6}, {**run, "losses": [math.nan] * 7}):
            with self.assertRaises(Unreadable):
                readers.pytorch(1000)(json.dumps(wrong))

    def test_slowest_kernels(self):
        metrics = [("gpu__time_duration.sum", "ns", "2,000"), ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "80.5")]
        rows = [f'"{launch}","{kernel}","{name}","{unit}","{value}"' for launch, kernel in enumerate(["a", "b, c", "b, c"])
                for name, unit, value in metrics]
        text = "==PROF== Connected\n" + "\n".join(['"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"', *rows])
        found = readers.slowest_kernels(text)["kernels"]
        self.assertEqual([(kernel["kernel"], kernel["launches"], kernel["us"]) for kernel in found], [("b, c", 2, 4.0), ("a", 1, 2.0)])
        self.assertEqual(found[0]["sm__throughput.avg.pct_of_peak_sustained_elapsed"], 80.5)
        self.assertEqual(len(readers.slowest_kernels(text, 1)["kernels"]), 1)
        for wrong in ("==ERROR== ERR_NVGPUCTRPERM", text.split("\n")[1]):
            with self.assertRaises(Unreadable):
                readers.slowest_kernels(wrong)


class Others(unittest.TestCase):
    def test_tests(self):
        self.assertEqual(readers.tests("[  PASSED  ] 12 tests.")["passed"], 12)
        found = readers.tests("[  PASSED  ] 11 tests.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A.b, where x = 1\n")
        self.assertIn("A.b", found["failed_tests"])
        self.assertTrue(found["failed"])
        for text in ("", "Segmentation fault", "[  PASSED  ] 0 tests."):
            with self.assertRaises(Unreadable):
                readers.tests(text)

    def test_missing_libraries_are_named_with_who_wants_them(self):
        text = """/r/bin/a:
\tlibc.so.6 => /lib/libc.so.6 (0x1)
\tlibcudnn.so.9 => not found
/r/bin/b:
/r/bin/b: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /r/bin/b)
\tlibcudnn.so.9 => not found
"""
        found = readers.libraries(text)
        self.assertEqual(found["missing"]["libcudnn.so.9"], ["a", "b"])
        self.assertIn("libcudnn.so.9 not found (a, b)", found["failed"])
        self.assertIn("GLIBC_2.38", found["failed"])
        self.assertNotIn("failed", readers.libraries(text.split("libcudnn")[0]))
        with self.assertRaises(Unreadable):
            readers.libraries("")

    def test_versions(self):
        text = "library driver built 13000 found 13010\nlibrary cudnn built 91900 found 91800\n" \
               "library cublaslt built 130100 found 130000\n"
        self.assertNotIn("failed", readers.versions(text))
        for found, wrong in (("91800", "91300"), ("13010", "12080"), ("130000", "120900")):
            failed = readers.versions(text.replace(f"found {found}", f"found {wrong}"))["failed"]
            self.assertIn(f"{wrong} is older than", failed)
        with self.assertRaises(Unreadable):
            readers.versions("Segmentation fault")

    def test_checkers(self):
        self.assertIn("ERROR SUMMARY: 2", readers.memcheck("== ERROR SUMMARY: 2 errors")["failed"])
        clean = readers.memcheck("RACECHECK SUMMARY: 0 hazards displayed")
        self.assertNotIn("failed", clean)
        with self.assertRaises(Unreadable):
            readers.memcheck("[  PASSED  ] 7 tests.")

    def test_ceilings(self):
        known = '{"bf16_flops": 7.9e14, "copy_bytes": 3e12}'
        self.assertIn("790 TFLOP/s", readers.ceilings(known + "\nTraceback: no FP8")["summary"])
        with self.assertRaises(Unreadable):
            readers.ceilings("Traceback")

    def test_no_speed_where_none_can_be_trusted(self):
        found = readers.step_time(GOLDEN, lambda: "no speed")(STEP)
        self.assertEqual(found["failed"], "no speed")
        self.assertNotIn("tokens_per_second", found)


if __name__ == "__main__":
    unittest.main()
