"""Proves of each case of a check, by the plan that the real programs make without a GPU: there is
such a model, its memory is what the table of cases says, and a layer has the ops that it is there
for.
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/gpu_check"))

import cases  # noqa: E402
import readers  # noqa: E402

PREDICT = pathlib.Path(os.environ["TRAINYARD_BUILD"]) / "bench/predict_step"
SMALLEST = 79  # GiB of a GPU with 80 GB.
CONTEXT = 1  # GiB that each program takes besides its tensors.
GIB = {"MiB": 1 / 1024, "GiB": 1}
# The ops for which there is a layer that is no row's.
OPS = {
    "qwen3_moe": {"head_norm_rope", "head_norm_rope_backward", "router", "expert_mlp",
                  "expert_mlp_backward"},
    "deepseek_v3": {"latent_heads", "latent_heads_backward", "attention", "attention_backward",
                    "router", "expert_mlp", "expert_mlp_backward", "load_balance",
                    "load_balance_backward", "balance_bias"},
    "gpt_oss": {"attention", "attention_backward", "router", "expert_mlp", "expert_mlp_backward"},
    "llama_packed": {"attention", "attention_backward"},
    "mamba2": {"causal_conv", "causal_conv_backward", "state_scan", "state_scan_backward"},
}


def prediction(case):
    ran = subprocess.run([PREDICT, "--gpu", "h100", *map(str, case.options())],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ran.returncode != 0:
        raise AssertionError(f"{case}: {ran.stdout}")
    return readers.prediction(ran.stdout)["predicted"]


class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        every = [*cases.ROWS, *cases.MORE_ROWS, *cases.LAYERS, *cases.MORE_LAYERS, cases.TINY,
                 *cases.golden_curves()]
        cls.found = {case: prediction(case) for case in every}

    def test_each_needs_no_more_memory_than_the_table_says(self):
        for case, found in self.found.items():
            size, unit = re.match(r"([\d.]+) (\w+)", found["memory"]).groups()
            self.assertLessEqual(float(size) * GIB[unit], case.gib, str(case))

    def test_the_layers_fit_on_one_gpu_side_by_side(self):
        needed = sum(case.gib + CONTEXT for case in cases.LAYERS)
        self.assertLessEqual(needed, SMALLEST)

    def test_each_layer_has_the_ops_that_it_is_there_for(self):
        for model, ops in OPS.items():
            case = next(case for case in cases.LAYERS if case.model == model)
            self.assertEqual((case.micro, case.sequence), (1, 1024))
            missing = ops - set(self.found[case]["ops_ms"])
            self.assertEqual(missing, set(), f"{case} has {sorted(self.found[case]['ops_ms'])}")

    def test_attention_of_each_layer_is_cudnns_or_ours_as_it_should(self):
        # The order of sums changes the memory of cuDNN's plans alone. Our kernels need the same.
        for model, ours in (("deepseek_v3", False), ("gpt_oss", False), ("llama_packed", True)):
            case = next(case for case in cases.LAYERS if case.model == model)
            needs = {self.found[case]["memory"], prediction(case.any_order())["memory"]}
            self.assertEqual(len(needs) == 1, ours, model)


if __name__ == "__main__":
    unittest.main()
