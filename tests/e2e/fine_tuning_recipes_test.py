"""Proves that each recipe of recipes/finetune trains a model of Hugging Face on a file of its user's, as the head of the recipe says, and that
`generate` takes the result. The test makes batches and runs smaller. It catches a recipe that is refused, and one that it does not know."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
sys.path.append(str(SOURCE / "tests/clients"))

from local_service import BIN, SPEC, LocalService  # noqa: E402

# What a user of each recipe sets, beside the model.
FILES = {
    "sft": "data.chat.path=chats.jsonl", "lora": "data.chat.path=chats.jsonl", "rslora": "data.chat.path=chats.jsonl",
    "lora-fp8": "data.chat.path=chats.jsonl", "qlora": "data.chat.path=chats.jsonl", "segments": "data.chat.path=segments.jsonl", "documents": "data.indexed.prefix=documents",
    "dpo": "data.chat.path=pairs.jsonl",
}
CHATML = "data.chat.format=chatml"  # The model has no chat template.


CHARS = [*range(33, 127), *range(161, 173), *range(174, 256)]  # What a byte-level tokenizer.json writes as they are.


def byte_tokenizer():
    """A tokenizer.json whose first 256 ids are the bytes, as those of data.text; then come the tokens of chatml."""
    others = iter(range(256, 512))
    letters = [chr(byte if byte in CHARS else next(others)) for byte in range(256)]
    added = [{"id": 256 + i, "content": token, "special": True, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
             for i, token in enumerate(("<|im_start|>", "<|im_end|>"))]
    step = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": step, "post_processor": None, "decoder": step,
            "model": {"type": "BPE", "vocab": {letter: byte for byte, letter in enumerate(letters)}, "merges": []}}


class FineTuningRecipes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = LocalService()
        cls.addClassCleanup(cls.service.stop)
        directory = cls.service.directory
        base = SPEC | {"name": "base", "steps": 1, "checkpoint": {"directory": "runs/base", "every_steps": 1}}
        base["model"] = {"preset": "llama3-8b", "overrides": SPEC["model"]["overrides"] | {"vocab": 258, "max_seq": 128}}
        cls.service.trainyard("submit", "-", "--watch", stdin=json.dumps(base))
        cls.service.trainyard("export", "runs/base", "--to", "model")
        (directory / "model/tokenizer.json").write_text(json.dumps(byte_tokenizer()))
        numbers = [(f"What is {i} + 1?", str(i + 1)) for i in range(60)]
        lines = {"chats": [{"prompt": question, "completion": answer} for question, answer in numbers],
                 "segments": [{"segments": [{"text": question, "train": False}, {"text": answer, "train": True}]} for question, answer in numbers],
                 "pairs": [{"prompt": question, "chosen": answer, "rejected": answer + "0"} for question, answer in numbers],
                 "texts": [{"text": 20 * f"{question} {answer}\n"} for question, answer in numbers]}
        for name, objects in lines.items():
            (directory / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in objects))
        subprocess.run([BIN / "trainyard-tokenize", "--quiet", "--tokenizer", "model", "texts.jsonl", "documents"], cwd=directory, check=True)

    def test_each_trains_on_a_file_of_its_user(self):
        recipes = sorted((SOURCE / "recipes/finetune").glob("*.yaml"))
        self.assertEqual({recipe.stem for recipe in recipes}, set(FILES))
        for recipe in recipes:
            with self.subTest(recipe.stem):
                sets = ["model.import=model", FILES[recipe.stem], "steps=10", "validation.every_steps=10", "batch={global: 2, micro: 1, sequence: 128}"]
                chats = FILES[recipe.stem].endswith(("chats.jsonl", "pairs.jsonl"))
                words = [word for value in sets + [CHATML] * chats for word in ("--set", value)]
                job = self.service.trainyard("submit", str(recipe), "--watch", "--quiet", *words).split()[0]
                steps = [json.loads(line) for line in self.service.trainyard("steps", job, "-o", "jsonl").splitlines()]
                self.assertEqual(len(steps), 10)
                self.assertGreater(steps[-1]["validation_loss"], 0)
                asked = ["--chat", "What is 7 + 1?"] if chats else ["--prompt", "What is 7 + 1?"]
                answer = self.service.trainyard("generate", f"runs/{recipe.stem}", "--tokens", "4", *asked)
                self.assertTrue(answer)


if __name__ == "__main__":
    unittest.main()
