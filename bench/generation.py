#!/usr/bin/env python3
"""How fast text is generated, beside `transformers`: GPT-2's shape of 124M with a vocabulary of 256 and random weights, in f32,
greedily, so many texts at once, both in turn within one run.

  bench/generation.py [--python PYTHON] [--rounds 3] [--tokens 256] [--threads 2] [--batch 1 8 32]

PYTHON is an interpreter that can import torch and transformers. Needs build/bin/trainyard-trainer. A time a token is that of
so many tokens after 16, less that of the 16 alone, which has start and loading in it, divided by the texts. Quotes medians
over the rounds.
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
FEW = 16
SPEC = """name: generation
model: {{preset: gpt2-124m, overrides: {{vocab: 256}}}}
precision: F32
batch: {{global: 1, micro: 1, sequence: 1024}}
data: {{synthetic: {{}}}}
optimizer: {{adamw: {{learning_rate: 1e-4}}}}
steps: 1
checkpoint: {{directory: {}}}
"""
PEER = """
import sys, time, torch, transformers
few, tokens, threads, batch = map(int, sys.argv[1:])
torch.set_num_threads(threads)
config = transformers.GPT2Config(vocab_size=256)
model = transformers.GPT2LMHeadModel(config).eval()
prompt = torch.randint(0, 256, (batch, few))
def seconds(count):
    start = time.perf_counter()
    model.generate(prompt, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)
    return time.perf_counter() - start
with torch.no_grad():
    seconds(few)
    print((seconds(few + tokens) - seconds(few)) / tokens / batch, torch.__version__, transformers.__version__)
"""


def ours(trainer, checkpoint, arguments, batch):
    def seconds(count):
        start = time.perf_counter()
        subprocess.run([trainer, "--generate", checkpoint, *["--prompt", PROMPT] * batch, "--batch", str(batch), "--temperature",
                        "0", "--tokens", str(count), "--threads", str(arguments.threads)], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    return (seconds(FEW + arguments.tokens) - seconds(FEW)) / arguments.tokens / batch


def peer(python, arguments, batch):
    words = [str(FEW), str(arguments.tokens), str(arguments.threads), str(batch)]
    out = subprocess.run([python, "-c", PEER, *words], check=True, capture_output=True, text=True)
    seconds, *versions = out.stdout.split()
    return float(seconds), versions


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    arguments = parser.parse_args()
    trainer = ROOT / "build/bin/trainyard-trainer"
    with tempfile.TemporaryDirectory() as directory:
        spec = Path(directory) / "spec.yaml"
        spec.write_text(SPEC.format(directory + "/run"))
        subprocess.run([trainer, spec], check=True, stderr=subprocess.DEVNULL)
        for batch in arguments.batch:
            mine, theirs = [], []
            for _ in range(arguments.rounds):
                mine.append(ours(trainer, directory + "/run", arguments, batch))
                seconds, versions = peer(arguments.python, arguments, batch)
                theirs.append(seconds)
                print(f"batch {batch}: trainyard {1e3 * mine[-1]:.1f} ms a token, torch {versions[0]} with transformers "
                      f"{versions[1]} {1e3 * theirs[-1]:.1f}", flush=True)
            print(f"batch {batch}, medians: {1e3 * statistics.median(mine):.1f} and {1e3 * statistics.median(theirs):.1f} ms, "
                  f"{statistics.median(theirs) / statistics.median(mine):.2f} times as many tokens a second", flush=True)


if __name__ == "__main__":
    main()
