"""Proves the parts of scripts/layout_fuzz.py that a clean run does not show: the comparison sees each
kind of difference, boxes become whole tensors, and a seed repeats what is drawn."""
import json
import math
import random
import struct
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/layout_fuzz"), str(ROOT / "bench")]
import checkpoints  # noqa: E402
import layout_fuzz  # noqa: E402
import problems  # noqa: E402

FAMILY = {"name": "llama", "preset": "llama3-8b", "grouped": True,
          "fields": {"layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab",
                     "max_seq", "tied"}}


def trained(loss=2.0, more=None, **tensors):
    return {"steps": [{"step": 1, "loss": 3.0, "grad_norm": 1.0},
                      {"step": 2, "loss": loss, "grad_norm": 1.0} | (more or {})],
            "tensors": {("parameter", "a"): [3.0, 4.0], ("m", "a"): [1.0, 0.0]} | tensors}


class Compare(unittest.TestCase):
    def expect(self, found, where):
        difference = layout_fuzz.compare(trained(), found)
        self.assertIn(where, difference.first)
        self.assertGreater(difference.largest, layout_fuzz.LIMIT)

    def test_equal_numbers_are_no_difference(self):
        difference = layout_fuzz.compare(trained(), trained(loss=2.0 + 2e-12))
        self.assertEqual(difference.first, "")
        self.assertAlmostEqual(difference.largest, 1e-12)

    def test_each_kind_of_difference_is_seen(self):
        self.expect(trained(loss=2.0 + 1e-8), "step 2, loss")
        self.expect(trained(loss=math.nan), "step 2, loss")
        self.expect(trained(loss=None), "step 2, loss")
        self.expect(trained(more={"validation_loss": 1.0}), "step 2, validation_loss")
        self.expect(trained() | {"steps": trained()["steps"][:1]}, "step 2, loss")
        self.expect(trained(more={"reward_margin": 0.0}), "step 2, reward_margin")
        others = trained()["tensors"] | {("parameter", "a"): [3.0, 4.0 + 1e-8]}
        self.expect(trained() | {"tensors": others}, "parameter a")
        others = {("parameter", "a"): [3.0, 4.0]}
        self.expect(trained() | {"tensors": others}, "only one of the two")


    def test_rewards_of_zero_are_compared_by_what_they_differ(self):
        one, found = trained(more={"reward_margin": 0.0}), trained(more={"reward_margin": 1e-13})
        self.assertEqual(layout_fuzz.compare(one, found).first, "")
        found = trained(more={"reward_margin": 1e-6})
        self.assertIn("step 2, reward_margin", layout_fuzz.compare(one, found).first)


class Checkpoints(unittest.TestCase):
    def test_boxes_become_a_whole_tensor(self):
        with tempfile.TemporaryDirectory() as directory:
            step = Path(directory) / "epoch-1/step-3"
            step.mkdir(parents=True)
            (step / "rank-0.bin").write_bytes(struct.pack("<5d", -1, 0, 1, 3, 4))
            (step / "rank-1.bin").write_bytes(struct.pack("<2d", 2, 5))
            boxes = [{"offset": [0, 0], "extent": [2, 2], "file": "rank-0.bin", "file_offset": 8},
                     {"offset": [0, 2], "extent": [2, 1], "file": "rank-1.bin", "file_offset": 0}]
            (step / "manifest.json").write_text(json.dumps({"tensors": [
                {"name": "a", "kind": "m", "dtype": "f64", "shape": [2, 3], "boxes": boxes}]}))
            tensors = checkpoints.read_tensors(Path(directory))
        self.assertEqual(list(tensors["m", "a"]), [0, 1, 2, 3, 4, 5])


    def test_the_base_of_an_adapter_is_read_with_it(self):
        with tempfile.TemporaryDirectory() as directory:
            run = Path(directory) / "epoch-1"
            for place, name in (("step-3", "w.lora_A.weight"), ("base", "w.weight")):
                (run / place).mkdir(parents=True)
                (run / place / "rank-0.bin").write_bytes(struct.pack("<d", len(name)))
                tensor = {"name": name, "kind": "parameter", "dtype": "f64", "shape": [1],
                          "boxes": [{"offset": [0], "extent": [1], "file": "rank-0.bin",
                                     "file_offset": 0}]}
                base = {"base": {"path": "../base"}} if place == "step-3" else {}
                (run / place / "manifest.json").write_text(json.dumps({"tensors": [tensor]} | base))
            tensors = checkpoints.read_tensors(Path(directory))
        self.assertEqual({name: list(values) for (_, name), values in tensors.items()},
                         {"w.lora_A.weight": [15.0], "w.weight": [8.0]})


class Problems(unittest.TestCase):
    def test_chats_pairs_and_adapters_are_drawn(self):
        specs = [problems.Problem(random.Random(seed), [FAMILY],
                                  lambda spec: ("base", ["a.0.b", "c"])).one_rank()
                 for seed in range(100)]
        chats = [spec for spec in specs if "chat" in spec["data"]]
        self.assertTrue(any("preference" not in spec and "adapter" in spec for spec in chats))
        self.assertTrue(any("preference" in spec and "adapter" in spec for spec in chats))
        self.assertTrue(any("preference" in spec and "adapter" not in spec for spec in chats))
        self.assertTrue(all(("init_from" in spec) == ("adapter" in spec) for spec in specs))

    def test_a_seed_repeats_what_is_drawn(self):
        def draw(seed):
            problem = problems.Problem(random.Random(seed), [FAMILY], lambda spec: ("base", ["a.0.b", "c"]))
            return problem.one_rank(), problem.draw_layout(random.Random(seed + 1))
        self.assertEqual([draw(seed) for seed in range(20)], [draw(seed) for seed in range(20)])
        self.assertNotEqual(draw(1), draw(2))

    def test_patterns_take_all_experts_of_a_layer_or_none(self):
        names = ["model.layers.1.mlp.experts.3.up_proj.weight"]
        drawn = {pattern for seed in range(20)
                 for pattern in problems.draw_patterns(random.Random(seed), names)}
        self.assertEqual(drawn, {"model.layers.1.mlp.experts.*", "model.layers.*.mlp.experts.*"})


if __name__ == "__main__":
    unittest.main()
