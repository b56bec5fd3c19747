#!/usr/bin/env python3
"""How fast text is generated, beside `transformers`: GPT-2's shape of 124M with a vocabulary of 256
and random weights, greedily, so many texts at once, both in turn within one run.

  bench/generation.py [--python PYTHON] [--rounds 3] [--tokens 128] [--threads 2] [--batch 1 8 32]
                      [--precision F32 BF16] [--after 16 256 768] [--lengths 16,128,512,896]

PYTHON is an interpreter that can import torch and transformers. Needs build/bin/trainyard-trainer.
A time a token is that of --tokens tokens after the first so many, less that of the latter alone,
which has start and loading in it, divided by the texts. Quotes medians over the rounds. The peer
computes in the same precision, with weights that lie in memory as they are read.

With --lengths, our program alone: a time a token is that of --tokens tokens behind the first one
that follows a prompt of so many bytes, which are as many tokens. Each round has all lengths in turn,
and the medians say whether a token costs more where more is before it.
"""
import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "In the beginning"
WINDOW = 1024
SPEC = """name: generation
model: {{preset: gpt2-124m, overrides: {{vocab: 256}}}}
precision: {precision}
batch: {{global: 1, micro: 1, sequence: {window}}}
data: {{synthetic: {{}}}}
optimizer: {{adamw: {{learning_rate: 1e-4}}}}
steps: 1
checkpoint: {{directory: {directory}}}
"""
PEER = """
import sys, time, torch, transformers
after, tokens, threads, batch = map(int, sys.argv[1:5])
torch.set_num_threads(threads)
config = transformers.GPT2Config(vocab_size=256, bos_token_id=0, eos_token_id=0)
dtype = {"F32": torch.float32, "BF16": torch.bfloat16}[sys.argv[5]]
model = transformers.GPT2LMHeadModel(config).eval().to(dtype)
prompt = torch.randint(0, 256, (batch, 16))
def seconds(count):
    start = time.perf_counter()
    model.generate(prompt, max_new_tokens=count, min_new_tokens=count, do_sample=False,
                   pad_token_id=0)
    return time.perf_counter() - start
with torch.no_grad():
    seconds(16)
    print((seconds(after + tokens) - seconds(after)) / tokens / batch, torch.__version__,
          transformers.__version__)
"""


def ours(trainer, checkpoint, arguments, batch, after, prompt=PROMPT):
    def seconds(count):
        start = time.perf_counter()
        subprocess.run([trainer, "--generate", checkpoint, *["--prompt", prompt] * batch, "--batch",
                        str(batch), "--temperature", "0", "--tokens", str(count), "--threads",
                        str(arguments.threads)], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    return (seconds(after + arguments.tokens) - seconds(after)) / arguments.tokens / batch


def peer(python, arguments, batch, after, precision):
    words = map(str, [after, arguments.tokens, arguments.threads, batch, precision])
    out = subprocess.run([python, "-c", PEER, *words], check=True, capture_output=True, text=True)
    seconds, torch, transformers = out.stdout.split()
    return float(seconds), torch, transformers


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="an interpreter with torch and transformers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--precision", nargs="+", default=["BF16"], choices=["F32", "BF16"])
    parser.add_argument("--after", type=int, nargs="+", default=[16], help="tokens before those that are timed")
    parser.add_argument("--lengths", type=numbers, help="bytes of the prompts, with commas between: our program alone")
    arguments = parser.parse_args()
    most = WINDOW - arguments.tokens - 1
    if arguments.lengths and not 1 <= min(arguments.lengths) <= max(arguments.lengths) <= most:
        parser.error(f"--lengths {arguments.lengths}: each is 1 to {most}, so that --tokens {arguments.tokens} and one more fit "
                     f"into the window of {WINDOW}")
    if arguments.lengths and arguments.python:
        parser.error("--lengths measures our program alone; leave out --python")
    trainer = ROOT / "build/bin/trainyard-trainer"
    for precision in arguments.precision:
        with tempfile.TemporaryDirectory() as directory:
            spec = Path(directory, "spec.yaml")
            spec.write_text(SPEC.format(precision=precision, window=WINDOW, directory=directory + "/run"))
            subprocess.run([trainer, spec], check=True, stderr=subprocess.DEVNULL)
            if arguments.lengths:
                for batch in arguments.batch:
                    compare_lengths(trainer, directory + "/run", arguments, batch, precision)
                continue
            for batch, after in ((batch, after) for batch in arguments.batch for after in arguments.after):
                compare(trainer, directory + "/run", arguments, batch, after, precision)


def compare_lengths(trainer, checkpoint, arguments, batch, precision):
    times = {length: [] for length in arguments.lengths}
    for _ in range(arguments.rounds):
        for length, found in times.items():
            prompt = (PROMPT * (length // len(PROMPT) + 1))[:length]
            found.append(ours(trainer, checkpoint, arguments, batch, 1, prompt))
            print(f"{precision}, batch {batch}, after {length} tokens: {found[-1] * 1e3:.2f} ms a token", flush=True)
    medians = {length: statistics.median(found) for length, found in times.items()}
    first = medians[arguments.lengths[0]]
    for length, median in medians.items():
        print(f"{precision}, batch {batch}, after {length} tokens, median: {median * 1e3:.2f} ms a token, "
              f"{median / first:.2f} times that after {arguments.lengths[0]}", flush=True)


def compare(trainer, checkpoint, arguments, batch, after, precision):
    name = f"{precision}, batch {batch}, after {after} tokens"
    mine, theirs = [], []
    for _ in range(arguments.rounds):
        mine.append(ours(trainer, checkpoint, arguments, batch, after))
        line = f"{name}: trainyard {mine[-1] * 1e3:.1f} ms a token"
        if arguments.python:
            seconds, torch, transformers = peer(arguments.python, arguments, batch, after, precision)
            theirs.append(seconds)
            line += f", torch {torch} with transformers {transformers} {seconds * 1e3:.1f}"
        print(line, flush=True)
    median = statistics.median(mine)
    if theirs:
        other = statistics.median(theirs)
        print(f"{name}, medians: {median * 1e3:.1f} and {other * 1e3:.1f} ms, {other / median:.2f} times as many tokens a second",
              flush=True)
    else:
        print(f"{name}, median: {median * 1e3:.1f} ms a token", flush=True)


if __name__ == "__main__":
    sys.exit(main())
