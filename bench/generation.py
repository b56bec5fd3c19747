#!/usr/bin/env python3
"""How fast text is generated, beside `transformers`: GPT-2's shape of 124M with a vocabulary of 256 and random weights, in f32,
greedily, one text, both in turn within one run.

  bench/generation.py [--python PYTHON] [--rounds 3] [--tokens 256] [--threads 2]

PYTHON is an interpreter that can import torch and transformers. Needs build/bin/trainyard-trainer. A time a token is that of
so many tokens after 16, less that of the 16 alone, which has start and loading in it. Quotes medians over the rounds.
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
few, tokens, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
config = transformers.GPT2Config(vocab_size=256)
model = transformers.GPT2LMHeadModel(config).eval()
prompt = torch.randint(0, 256, (1, few))
def seconds(count):
    start = time.perf_counter()
    model.generate(prompt, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)
    return time.perf_counter() - start
with torch.no_grad():
    seconds(few)
    print((seconds(few + tokens) - seconds(few)) / tokens, torch.__version__, transformers.__version__)
"""


def ours(trainer, checkpoint, tokens, threads):
    def seconds(count):
        start = time.perf_counter()
        subprocess.run([trainer, "--generate", checkpoint, "--prompt", PROMPT, "--temperature", "0", "--tokens", str(count),
                        "--threads", str(threads)], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    return (seconds(FEW + tokens) - seconds(FEW)) / tokens


def peer(python, tokens, threads):
    out = subprocess.run([python, "-c", PEER, str(FEW), str(tokens), str(threads)], check=True, capture_output=True, text=True)
    seconds, *versions = out.stdout.split()
    return float(seconds), versions


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    trainer = ROOT / "build/bin/trainyard-trainer"
    with tempfile.TemporaryDirectory() as directory:
        spec = Path(directory) / "spec.yaml"
        spec.write_text(SPEC.format(directory + "/run"))
        subprocess.run([trainer, spec], check=True, stderr=subprocess.DEVNULL)
        mine, theirs = [], []
        for _ in range(arguments.rounds):
            mine.append(ours(trainer, directory + "/run", arguments.tokens, arguments.threads))
            seconds, versions = peer(arguments.python, arguments.tokens, arguments.threads)
            theirs.append(seconds)
            print(f"trainyard {1e3 * mine[-1]:.1f} ms a token, torch {versions[0]} with transformers {versions[1]} "
                  f"{1e3 * theirs[-1]:.1f}", flush=True)
    print(f"medians: {1e3 * statistics.median(mine):.1f} and {1e3 * statistics.median(theirs):.1f} ms, "
          f"{statistics.median(theirs) / statistics.median(mine):.2f} times as many tokens a second")


if __name__ == "__main__":
    main()
