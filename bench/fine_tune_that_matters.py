#!/usr/bin/env python3
"""What a fine-tune teaches, on two cores: a model that has read one book learns to answer questions about another.

  bench/fine_tune_that_matters.py DIRECTORY [--samples 4]

Needs the build, and Debian's bible-kjv and tzdata, which scripts/install_deps.sh installs; both texts are in the public domain.
Everything goes through a service of its own, and all files lie in DIRECTORY. What is there already is not made again, so that the
parts can be run one after another.

1. pretrains a Llama of 5M parameters on the bytes of the King James Bible, and exports it;
2. makes questions and answers from the table of time zones by rules: in which country a city lies, and how its name is spelt;
3. trains an adapter of rank 16 on them (recipes/finetune/lora.yaml), and all weights (sft.yaml), each from the pretrained model;
4. prints how well each model answers what no job has trained on, with `trainyard evaluate --chats` and `trainyard generate --chats`.

The questions that are asked have two parts. `facts`: a city whose country was trained in three wordings, asked in a fourth one; this
measures what the model remembers. `spelling`: names that no trained line spells; this measures a skill. An answer counts if all of
it is right. `Bible` is the loss on the last two hundredths of the Bible, which no job has trained on: what the fine-tune cost.
"""
import argparse
import json
import os
import random
import subprocess
from pathlib import Path

from service import ROOT, Service

ZONES = Path("/usr/share/zoneinfo")
WORDINGS = ("Which country is {} in?", "{} lies in which country?", "In which country do I find {}?", "Name the country of {}.")
FACTS, SPELLINGS = 120, 80
# Beside recipes/quickstart.yaml: bytes and two tokens of chats, and sequences as long as the recipes' packs of chats.
MODEL = {"vocab": 258, "max_seq": 2048}
HELD_OUT = 0.02  # Of the Bible.
PRETRAINING = {"steps": 1000, "optimizer.adamw.learning_rate": 2e-3}
# The recipe, and a learning rate for a model as small as this one.
FINE_TUNES = {"LoRA": ("lora", 5e-3), "all weights": ("sft", 1e-3)}
TUNING = {"steps": 800, "batch": "{global: 2, micro: 2, sequence: 2048}", "validation.every_steps": 133}
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


def table(name):
    return [line.split("\t") for line in (ZONES / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def questions():
    """What is trained, and of each part what is asked: pairs of a question and its answer."""
    rng = random.Random(1)
    countries = dict(table("iso3166.tab"))
    cities = [(zone.rpartition("/")[2].replace("_", " "), countries[code]) for code, _, zone, *_ in table("zone.tab")]
    rng.shuffle(cities)
    trained, asked = [], {"facts": [], "spelling": []}
    for i, (city, country) in enumerate(cities[:FACTS]):
        for wording, text in enumerate(WORDINGS):
            (asked["facts"] if wording == i % len(WORDINGS) else trained).append((text.format(city), country))
    for i, (city, _) in enumerate(cities):
        (asked["spelling"] if i < SPELLINGS else trained).append((f"Spell {city}.", "-".join(city.upper())))
    rng.shuffle(trained)
    return trained, asked


def write_chats(path, pairs):
    path.write_text("".join(json.dumps({"prompt": question, "completion": answer}) + "\n" for question, answer in pairs), encoding="utf-8")


def train(service, recipe, sets):
    words = [word for path, value in sets.items() for word in ("--set", f"{path}={value}")]
    service.run("submit", str(ROOT / "recipes" / f"{recipe}.yaml"), "--watch", "--quiet", *words)


def pretrain(service, directory):
    """Makes base/, a directory of Hugging Face with a tokenizer, and held_out.txt."""
    text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], env=dict(os.environ, PATH=f"{os.environ['PATH']}:/usr/games"), check=True,
                          capture_output=True).stdout
    (directory / "bible.txt").write_bytes(text)
    (directory / "held_out.txt").write_bytes(text[-int(len(text) * HELD_OUT):])
    steps = PRETRAINING["steps"]
    train(service, "quickstart", {
        **PRETRAINING, "seed": 1, "validation.every_steps": steps // 4, "data.text.path": directory / "bible.txt",
        "data.text.validation_fraction": HELD_OUT, "checkpoint": f"{{directory: {directory}/runs/bible, every_steps: {steps}}}",
        **{f"model.overrides.{name}": value for name, value in MODEL.items()}})
    service.run("export", f"{directory}/runs/bible", "--to", f"{directory}/base")
    (directory / "base/tokenizer.json").write_text(json.dumps(byte_tokenizer()), encoding="utf-8")
    service.run("import", f"{directory}/base", "--to", f"{directory}/before")


def scores(service, checkpoint, directory, parts):
    """A row of numbers: of each part the loss and the share of exact answers, and bits a byte of the Bible."""
    evaluate = lambda *words: json.loads(service.run("evaluate", checkpoint, "--window", "256", *words))
    row = []
    for part in parts:
        chats = evaluate("--chats", f"{directory}/{part}.jsonl", "--format", "chatml")["chats"]
        row += [f"{chats['loss']:.2f}", f"{100 * chats['exact_answers']:.0f} %"]
    return row + [f"{evaluate('--data', f'{directory}/held_out.txt')['text']['bits_per_byte']:.2f}"]


def exported_megabytes(service, directory, run, name):
    """Of what the fine-tune is given away as: an adapter, or a whole model."""
    out = directory / f"exported-{name}"
    if not out.exists():
        service.run("export", str(run), "--to", str(out))
    return f"{sum(path.stat().st_size for path in out.glob('*.safetensors')) / 1e6:.1f} MB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--samples", type=int, default=4, help="questions of each part that are shown with all answers")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    directory = args.directory.resolve()
    trained, asked = questions()
    for part, pairs in asked.items():
        write_chats(directory / f"{part}.jsonl", pairs)
    held_out = [pair for pairs in asked.values() for pair in pairs]
    write_chats(directory / "chats.jsonl", trained + held_out)
    share = (len(held_out) + 0.5) / (len(trained) + len(held_out))  # It holds out whole lines, and rounds down.
    runs = {"before": directory / "before"} | {name: directory / "runs" / recipe for name, (recipe, _) in FINE_TUNES.items()}
    with Service(2, roots=[directory]) as service:
        if not runs["before"].exists():
            pretrain(service, directory)
        for name, (recipe, rate) in FINE_TUNES.items():
            if not any(runs[name].glob(f"epoch-*/step-{TUNING['steps']}")):
                train(service, f"finetune/{recipe}", {
                    **TUNING, "model.import": directory / "base", "data.chat.path": directory / "chats.jsonl", "data.chat.format": "chatml",
                    "data.chat.validation_fraction": share, "optimizer.adamw.learning_rate": rate,
                    "checkpoint": f"{{directory: {runs[name]}, every_steps: 100000}}"})
        columns = [text for part in asked for text in (f"{part}: loss", f"{part}: exact")]
        print(f"| | {' | '.join(columns)} | Bible: bits a byte | export |\n|---|{(len(columns) + 2) * '---|'}")
        answers = {}
        for name, run in runs.items():
            size = "" if name == "before" else exported_megabytes(service, directory, run, run.name)
            print(f"| {name} | {' | '.join([*scores(service, str(run), directory, asked), size])} |", flush=True)
            for part, pairs in asked.items():
                write_chats(directory / "samples.jsonl", pairs[:args.samples])
                lines = service.run("generate", str(run), "--chats", f"{directory}/samples.jsonl", "--format", "chatml", "--temperature", "0",
                                    "--tokens", "60").splitlines()
                answers[name, part] = [json.loads(line)["generated"].replace("\n", " ")[:60] for line in lines]
    print(f"\n| question | right | {' | '.join(runs)} |\n|---|---|{len(runs) * '---|'}")
    for part, pairs in asked.items():
        for i, pair in enumerate(pairs[:args.samples]):
            print(f"| {' | '.join([*pair, *(answers[name, part][i] for name in runs)])} |")


if __name__ == "__main__":
    main()
