#!/usr/bin/env python3
"""What a fine-tune teaches, on two cores: a model that has read one book learns to answer questions about another.

  bench/fine_tune_that_matters.py [--pretrain 600] [--steps 600] [--seed 1] [--samples 6]

Needs the build, and Debian's bible-kjv and tzdata, which scripts/install_deps.sh installs; both texts are in the public domain.
Everything goes through a service of its own, in a temporary directory:

1. pretrains a Llama of 5M parameters on the bytes of the King James Bible, and exports it;
2. makes questions and answers from the table of time zones by rules: where a city lies, and coordinates in words;
3. trains adapters of rank 16 and 64 on them (the recipes lora and rslora of recipes/finetune), and all weights (sft), from one base;
4. asks the base and all models what no job has trained on, greedily, with `trainyard generate --chat`.

The questions that are asked have two parts. `facts`: a city whose country was trained, asked in a wording that this city was
never asked in; this measures what the model remembers. `coordinates`: places that no trained line has; this measures a skill.
Both are the last lines of the file, so that the validation loss is theirs. `Bible` is the loss on the last two hundredths of the
Bible, which no job has trained on: what the fine-tune cost.
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from service import ROOT, TRAINYARD, Service

ZONES = Path("/usr/share/zoneinfo")
WORDINGS = ("Which country is {} in?", "{} lies in which country?", "In which country do I find {}?", "Name the country of {}.")
COORDINATES = "Say {} in words."
ASKED = {"facts": 120, "coordinates": 80}
# Beside recipes/quickstart.yaml: bytes and two tokens of chats, and sequences as long as the recipes' packs of chats.
MODEL = {"vocab": 258, "max_seq": 2048}
HELD_OUT = 0.02  # Of the Bible.
# The recipe, and a learning rate for a model as small as this one.
FINE_TUNES = {"LoRA": ("lora", 3e-3), "rsLoRA": ("rslora", 2e-3), "full": ("sft", 1e-3)}
BATCH = "{global: 2, micro: 2, sequence: 2048}"
NAMES = ("before", *FINE_TUNES)
STILL = {"steps": 1, "optimizer.schedule.cosine.warmup_steps": 0, "optimizer.adamw.learning_rate": 1e-30}  # Leaves the base as it is.
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


def in_words(coordinates):
    """+4813+01620 is 48 degrees 13 minutes north, 16 degrees 20 minutes east."""
    north, latitude, minutes, east, longitude, more = re.fullmatch(r"([+-])(\d\d)(\d\d)([+-])(\d{3})(\d\d)", coordinates).groups()
    return (f"{int(latitude)} degrees {int(minutes)} minutes {'north' if north == '+' else 'south'}, "
            f"{int(longitude)} degrees {int(more)} minutes {'east' if east == '+' else 'west'}")


def table(name):
    return [line.split("\t") for line in (ZONES / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def questions(rng):
    """Of each part, what is trained and what is asked: pairs of a question and its answer."""
    countries = dict(table("iso3166.tab"))
    facts, coordinates = [], []
    for code, place, zone, *_ in table("zone.tab"):
        facts.append((zone.rpartition("/")[2].replace("_", " "), countries[code]))
        if len(place) == len("+4813+01620"):  # Few have seconds.
            coordinates.append((COORDINATES.format(place), in_words(place)))
    rng.shuffle(facts)
    rng.shuffle(coordinates)
    trained, asked = [], {"facts": [], "coordinates": coordinates[:ASKED["coordinates"]]}
    for i, (city, country) in enumerate(facts):
        for wording, text in enumerate(WORDINGS):
            left_out = i < ASKED["facts"] and wording == i % len(WORDINGS)
            (asked["facts"] if left_out else trained).append((text.format(city), country))
    trained += coordinates[ASKED["coordinates"]:]
    rng.shuffle(trained)
    return trained, asked


def write_chats(path, trained, asked):
    """The asked ones are the last lines; returns their share, which data.chat holds out."""
    held_out = [pair for part in asked.values() for pair in part]
    lines = [json.dumps({"prompt": question, "completion": answer}) for question, answer in trained + held_out]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return (len(held_out) + 0.5) / len(lines)  # It holds out whole lines, and rounds down.


def train(service, recipe, sets):
    """The validation loss at the end, and the seconds that the job took."""
    words = [word for path, value in sets.items() for word in ("--set", f"{path}={value}")]
    start = time.monotonic()
    job = service.run("submit", str(ROOT / "recipes" / f"{recipe}.yaml"), "--watch", "--quiet", *words).split()[0]
    seconds = time.monotonic() - start
    return json.loads(service.run("steps", job, "-o", "jsonl").splitlines()[-1])["validation_loss"], seconds


def ask(checkpoint, question, *words):
    done = subprocess.run([TRAINYARD, "generate", checkpoint, "--chat", question, "--temperature", "0", "--tokens", "64", *words],
                          capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode != 0:
        sys.exit(f"trainyard generate {checkpoint}: {done.stderr}")
    return done.stdout.strip()


def answers(checkpoint, asked, *words):
    """Of each part, the model's answers in the order of the questions."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return {part: list(pool.map(lambda pair: ask(checkpoint, pair[0], *words), pairs)) for part, pairs in asked.items()}


def exact(asked, given):
    return {part: sum(answer == right for answer, (_, right) in zip(given[part], pairs)) for part, pairs in asked.items()}


def bible():
    """The text with a verse a line, as the quickstart has it."""
    path = f"{os.environ['PATH']}:/usr/games"
    return subprocess.run(["bible", "-f", "gen1:1-rev22:21"], env=dict(os.environ, PATH=path), check=True, capture_output=True).stdout


def pretrain(service, directory, steps, seed):
    """Makes base/, a directory of Hugging Face with a tokenizer, and held_out.txt. Returns the seconds that the job took."""
    text = bible()
    (directory / "bible.txt").write_bytes(text)
    (directory / "held_out.txt").write_bytes(text[-int(len(text) * HELD_OUT):])
    _, seconds = train(service, "quickstart", {
        "steps": steps, "seed": seed, "validation.every_steps": steps, "data.text.path": directory / "bible.txt",
        "data.text.validation_fraction": HELD_OUT, "checkpoint": f"{{directory: {directory}/runs/bible, every_steps: {steps}}}",
        **{f"model.overrides.{name}": value for name, value in MODEL.items()}})
    service.run("export", f"{directory}/runs/bible", "--to", f"{directory}/base")
    (directory / "base/tokenizer.json").write_text(json.dumps(byte_tokenizer()), encoding="utf-8")
    service.run("import", f"{directory}/base", "--to", f"{directory}/before")
    return seconds


def tune(service, directory, recipe, name, share, changes):
    """As `train`, on the chats: the run lies in runs/NAME."""
    return train(service, f"finetune/{recipe}", {
        "model.import": f"{directory}/base", "data.chat.path": f"{directory}/chats.jsonl", "data.chat.format": "chatml",
        "data.chat.validation_fraction": share, "batch": BATCH, "checkpoint": f"{{directory: {directory}/runs/{name}, every_steps: 10000}}",
        **changes})


def bits_per_byte(service, directory, checkpoint):
    """On the part of the Bible that no job has trained on."""
    return json.loads(service.run("evaluate", f"{directory}/{checkpoint}", "--data", f"{directory}/held_out.txt", "--window", "256"))["text"]["bits_per_byte"]


def exported_megabytes(service, directory, run):
    """Of what the fine-tune is given away as: an adapter, or a whole model."""
    out = directory / f"exported-{Path(run).name}"
    service.run("export", f"{directory}/{run}", "--to", str(out))
    return sum(path.stat().st_size for path in out.glob("*.safetensors")) / 1e6


def print_table(rows):
    print(f"| | {' | '.join(NAMES)} |\n|---|{len(NAMES) * '---|'}")
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(values[column] for column in NAMES)} |")


def print_samples(asked, given, count):
    for part, pairs in asked.items():
        print(f"\n{part}:\n\n| question | right | {' | '.join(NAMES)} |\n|---|---|{len(NAMES) * '---|'}")
        for i, (question, right) in enumerate(pairs[:count]):
            cells = (given[name][part][i].replace("\n", " ")[:60] for name in NAMES)
            print(f"| {question} | {right} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pretrain", type=int, default=600, help="steps")
    parser.add_argument("--steps", type=int, default=600, help="of each fine-tune")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=int, default=6)
    args = parser.parse_args()
    start = time.monotonic()
    trained, asked = questions(random.Random(args.seed))
    with Service(2) as service:
        directory = Path(service.directory)
        print(f"pretraining {args.pretrain} steps ...", flush=True)
        seconds = {"before": pretrain(service, directory, args.pretrain, args.seed)}
        share = write_chats(directory / "chats.jsonl", trained, asked)
        runs = {name: f"runs/{name}" for name in NAMES} | {"before": "before"}
        losses = {"before": tune(service, directory, "sft", "still", share, STILL)[0]}
        print(f"fine-tuning {args.steps} steps: {', '.join(FINE_TUNES)} ...", flush=True)
        with concurrent.futures.ThreadPoolExecutor(len(FINE_TUNES)) as pool:
            ended = {name: pool.submit(tune, service, directory, recipe, name, share, {
                "steps": args.steps, "seed": args.seed, "optimizer.adamw.learning_rate": rate, "validation.every_steps": args.steps})
                for name, (recipe, rate) in FINE_TUNES.items()}
        for name, tuned in ended.items():
            losses[name], seconds[name] = tuned.result()
        print("asking ...\n", flush=True)
        given = {name: answers(f"{directory}/{run}", asked, *(["--format", "chatml"] if name == "before" else [])) for name, run in runs.items()}
        right = {name: exact(asked, of_name) for name, of_name in given.items()}
        rows = {"validation loss of the answers": {name: f"{losses[name]:.3f}" for name in NAMES}}
        for part, pairs in asked.items():
            rows[f"{part}: exact answers of {len(pairs)}"] = {name: str(right[name][part]) for name in NAMES}
        rows["Bible: bits a byte"] = {name: f"{bits_per_byte(service, directory, run):.2f}" for name, run in runs.items()}
        rows["MB of the export"] = {"before": "-"} | {name: f"{exported_megabytes(service, directory, runs[name]):.1f}" for name in FINE_TUNES}
        rows["seconds of the job"] = {name: f"{seconds[name]:.0f}" for name in NAMES}
        print_table(rows)
        print_samples(asked, given, args.samples)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # The service has ended, and so has all that it started.
    print(f"\n{(used.ru_utime + used.ru_stime) / 60:.1f} processor minutes, {(time.monotonic() - start) / 60:.1f} minutes in all")


if __name__ == "__main__":
    main()
