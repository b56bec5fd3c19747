"""Proves that each recipe of recipes/finetune trains a model of Hugging Face on a file of its user's, as the head of the recipe says,
smaller only in its sizes, and that the result answers. And that the questions of bench/fine_tune_that_matters.py which are asked are not
those that are trained. Catches a recipe that is refused, or that no test knows the files of; and an answer that leaks into training."""
import json
import os
import pathlib
import random
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
sys.path += [str(SOURCE / "tests/clients"), str(SOURCE / "bench")]

from fine_tune_that_matters import WORDINGS, byte_tokenizer, in_words, questions  # noqa: E402
from local_service import BIN, SPEC, LocalService  # noqa: E402

# What a user of each recipe sets, beside the model.
FILES = {
    "sft": "data.chat.path=chats.jsonl", "lora": "data.chat.path=chats.jsonl", "rslora": "data.chat.path=chats.jsonl",
    "lora-fp8": "data.chat.path=chats.jsonl", "segments": "data.chat.path=segments.jsonl", "documents": "data.indexed.prefix=documents",
}
CHATML = "data.chat.format=chatml"  # The model has no chat template.


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
                chats = FILES[recipe.stem].endswith("chats.jsonl")
                words = [word for value in sets + [CHATML] * chats for word in ("--set", value)]
                self.service.trainyard("submit", str(recipe), "--watch", *words)
                job = json.loads(self.service.trainyard("list", "-o", "jsonl").splitlines()[0])["id"]
                steps = [json.loads(line) for line in self.service.trainyard("steps", job, "-o", "jsonl").splitlines()]
                self.assertEqual(len(steps), 10)
                self.assertGreater(steps[-1]["validation_loss"], 0)
                asked = ["--chat", "What is 7 + 1?"] if chats else ["--prompt", "What is 7 + 1?"]
                self.service.trainyard("generate", f"runs/{recipe.stem}", "--tokens", "4", *asked)


class Questions(unittest.TestCase):
    def test_what_is_asked_is_not_trained(self):
        trained, asked = questions(random.Random(7))
        trained_questions = {question for question, _ in trained}
        self.assertEqual(len(trained_questions), len(trained))
        for part in asked.values():
            self.assertFalse(trained_questions & {question for question, _ in part})
        # A fact is known from all other wordings, and a place from no line at all.
        for question, country in asked["facts"]:
            wording = next(text for text in WORDINGS if question.startswith(text.split("{}")[0]) and question.endswith(text.split("{}")[1]))
            city = question.removeprefix(wording.split("{}")[0]).removesuffix(wording.split("{}")[1])
            others = {text.format(city) for text in WORDINGS} - {question}
            self.assertEqual({answer for known, answer in trained if known in others}, {country}, question)
            self.assertLessEqual(others, trained_questions)
        for question, _ in asked["coordinates"]:
            self.assertFalse([known for known in trained_questions if question.split()[1] in known])

    def test_coordinates_in_words(self):
        self.assertEqual(in_words("+4813+01620"), "48 degrees 13 minutes north, 16 degrees 20 minutes east")
        self.assertEqual(in_words("-0848-17042"), "8 degrees 48 minutes south, 170 degrees 42 minutes west")


if __name__ == "__main__":
    unittest.main()
