#!/usr/bin/env python3
"""Writes the job specs of this folder: one for each row of table.csv.

  recipes/published/make.py             writes them, and removes those that have no row any more
  recipes/published/make.py --check     exit status 1 if a file is not what the table says
"""
import csv
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What the rows of a page have in common. AutoModel's page says that its runs neither clip gradients nor let the router
# choose, and FSDP shards weights and gradients beside the optimizer's state.
PAGES = {
    "nemo20": {"title": "NeMo 2.0 performance page, numbers of 24.07", "zero": "OPTIMIZER"},
    "automodel": {"title": "NeMo AutoModel performance summary", "zero": "FULL", "benchmark": True},
    "dgxc-llama31": {"title": "DGX Cloud performance recipes, Llama 3.1, v25.04", "zero": "OPTIMIZER"},
    "dgxc-nemotron4": {"title": "DGX Cloud performance recipes, Nemotron4, v25.04", "zero": "OPTIMIZER"},
}
# The page does not print its packs of SQuAD. `models/arch/conventions.cc` says where this length of a document comes from.
PACKED = ("nemo20", 247)
WITH_EXPERTS = ("deepseek", "kimi", "qwen3-30b", "gpt-oss", "nemotron3")

# The pages' runs in FP8 have Transformer Engine's recipe with delayed scaling.
PRECISIONS = {"bf16": "BF16", "fp8": "FP8_DELAYED"}

RESULTS = (("seconds_per_step", "{} s a step"), ("tokens_per_s", "{} tokens/s"),
           ("tokens_per_s_gpu", "{} tokens/s a GPU"), ("tflops_per_gpu", "{} TFLOP/s a GPU"), ("mfu", "MFU {} %"))


def name_of(row):
    name = f"{row['page']}-{row['preset']}-{row['precision']}-{row['gpus']}"
    return name if row["task"] == "pretrain" else f"{name}-{row['task']}"


def mapping(fields):
    return "{" + ", ".join(f"{key}: {value}" for key, value in fields.items()) + "}"


def head_of(row, page):
    results = ", ".join(words.format(row[column]) for column, words in RESULTS if row[column])
    what = {"pretrain": "", "sft": ", all weights fine-tuned,", "lora": ", fine-tuned with LoRA"}[row["task"]]
    lines = [f"{row['model']}{what} on {row['gpus']} H100 in {row['precision'].upper()}, "
             f"{row['gbs']} sequences of {row['sequence']} tokens in a step.",
             f"Published: {page['title']}" + (f": {results}" if results else "")]
    lines.append("Made by make.py from table.csv.")
    return [f"# {line}" for line in lines]


def parallelism_of(row, page):
    axes = (("tensor", "tp"), ("pipeline", "pp"), ("virtual_pipeline", "vp"), ("context", "cp"), ("expert", "ep"))
    sizes = {axis: row[column] for axis, column in axes if row[column] not in ("", "1")}
    return sizes | {"zero": page["zero"]}


def spec_of(row):
    page = PAGES[row["page"]]
    model = {"preset": row["preset"]}
    optimizer = {"adamw": "{learning_rate: 1e-4}"}
    if page.get("benchmark"):
        optimizer["clip_norm"] = 0
        if row["preset"].startswith(WITH_EXPERTS):
            model["overrides"] = "{moe: {fake_balanced: true}}"
    labels = {"page": row["page"]}
    adapter, data = [], "{synthetic: {}}"
    if row["task"] == "lora":
        adapter = ["adapter: {lora: {rank: 16, alpha: 32}}"]
    if row["task"] != "pretrain":
        labels["page_task"] = row["task"]
        if row["page"] == PACKED[0]:
            data = f"{{synthetic: {{document_tokens: {PACKED[1]}}}}}"
    return "\n".join(head_of(row, page) + [
        f"name: {name_of(row)}",
        f"model: {mapping(model)}",
        *adapter,
        f"precision: {PRECISIONS[row['precision']]}",
        f"parallelism: {mapping(parallelism_of(row, page))}",
        f"batch: {mapping({'global': row['gbs'], 'micro': row['mbs'], 'sequence': row['sequence']})}",
        f"data: {data}",
        f"optimizer: {mapping(optimizer)}",
        "steps: 50",
        f"devices: {row['gpus']}",
        "seed: 1",
        f"labels: {mapping(labels)}",
    ]) + "\n"


def main():
    with open(HERE / "table.csv", newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    specs = {f"{name_of(row)}.yaml": spec_of(row) for row in rows}
    assert len(specs) == len(rows), "two rows have one name"
    there = {path.name: path.read_text(encoding="utf-8") for path in HERE.glob("*.yaml")}
    different = sorted(name for name in specs.keys() | there.keys() if specs.get(name) != there.get(name))
    if "--check" in sys.argv[1:]:
        print("".join(f"{name}: not as table.csv and make.py have it\n" for name in different), end="")
        return 1 if different else 0
    for name in different:
        if name in specs:
            (HERE / name).write_text(specs[name], encoding="utf-8")
        else:
            (HERE / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
